"""`handoff`: what one hand-off stream carries beside a raw socket, and what the hand-off costs a request."""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvarn_bench.exposure import ExposureFigure, WorkerOptions, measure_exposure
from kvarn_bench.facts import machine_facts
from kvarn_bench.report import Report, TableText, figures, publish
from kvarn_bench.streams import StreamFigure, measure_streams

_SMOKE_MEGABYTES = 64
_SMOKE_LENGTHS = (64, 256)


@dataclass(frozen=True, slots=True)
class HandoffResults:
    megabytes: int
    workers: WorkerOptions
    streams: tuple[StreamFigure, ...]
    exposure: tuple[ExposureFigure, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=int, default=1000, help="sent in one round of a stream")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=("torch", "simulated"), default="torch", help="engine of both workers")
    parser.add_argument("--model", default="smollm2-135m", help="model of both workers")
    parser.add_argument("--threads", type=int, default=1, help="threads of each worker")
    parser.add_argument("--prompt-tokens", type=_lengths, default=(128, 512, 1024, 2048), help="as 128,512")
    parser.add_argument("--repeats", type=int, default=3, help="requests for each prompt length")
    parser.add_argument("--streams-only", action="store_true", help="leave the workers out")


def run(options: argparse.Namespace, argv: Sequence[str], json_path: Path | None) -> int:
    facts = machine_facts()
    results = asyncio.run(_measure(options))
    publish(Report("handoff", tuple(argv), facts, results, _tables(results)), json_path)
    return 0


async def _measure(options: argparse.Namespace) -> HandoffResults:
    """Smoke: simulated workers, which start in a second and need no model."""
    smoke = options.smoke
    megabytes = _SMOKE_MEGABYTES if smoke else options.megabytes
    workers = WorkerOptions("simulated" if smoke else options.engine, options.model, options.threads)
    streams = await measure_streams(megabytes, 1 if smoke else options.rounds)
    lengths = _SMOKE_LENGTHS if smoke else options.prompt_tokens
    exposure = () if options.streams_only else await measure_exposure(workers, lengths, 1 if smoke else options.repeats)
    return HandoffResults(megabytes, workers, streams, exposure)


def _tables(results: HandoffResults) -> tuple[TableText, ...]:
    streams = tuple(
        (figure.stream, *figures([figure.gigabytes_per_s], 2), f"{figure.share_of_tcp:.0%}")
        for figure in results.streams
    )
    exposure = tuple(
        (
            f"{figure.prompt_tokens:,}",
            *figures([figure.ttft_s * 1e3, figure.handoff_s * 1e3, figure.exposed_s * 1e3], 1),
            f"{figure.exposed_share_of_ttft:.1%}",
            *figures([figure.handoff_bytes / 1e6], 1),
        )
        for figure in results.exposure
    )
    title = f"hand-off of a request, {results.workers.engine} engine, {results.workers.threads} thread(s) each"
    columns = ("prompt tokens", "TTFT ms", "hand-off ms", "exposed ms", "exposed/TTFT", "MB")
    tables = (TableText(f"one stream, {results.megabytes} MB a round", ("stream", "GB/s", "of TCP"), streams),)
    return (*tables, TableText(title, columns, exposure)) if exposure else tables


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))
