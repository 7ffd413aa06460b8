"""`serve`: open-loop load on an OpenAI server, with percentiles and goodput under an objective."""

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from kvarn_bench.arrivals import poisson_arrivals
from kvarn_bench.facts import machine_facts
from kvarn_bench.load_client import LoadClient, LoadTarget, open_http
from kvarn_bench.percentiles import Distribution
from kvarn_bench.prompts import PromptMix, make_prompts
from kvarn_bench.report import Report, TableText, figures, publish
from kvarn_bench.slo import RequestOutcome, ServeSummary, Slo, summarize

_SMOKE_REQUESTS = 6
_SMOKE_RATE_PER_S = 4.0
_SMOKE_MAX_TOKENS = 8


@dataclass(frozen=True, slots=True)
class ServeOptions:
    url: str
    model: str
    rate_per_s: float
    requests: int
    max_tokens: int
    mix: PromptMix
    seed: int
    slo: Slo
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ServeResults:
    options: ServeOptions
    summary: ServeSummary
    outcomes: tuple[RequestOutcome, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="server, without /v1")
    parser.add_argument("--model", default="", help="model name; the server's first one by default")
    parser.add_argument("--api-key", default="", help="sent as a bearer token")
    parser.add_argument("--rate", type=float, default=2.0, help="mean arrivals per second (Poisson)")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--prompt-words", type=_lengths, default=(64, 256), help="lengths to draw from, as 64,256")
    parser.add_argument("--shared-prefix", type=float, default=0.5, help="share of a prompt that its group has alike")
    parser.add_argument("--prefix-groups", type=int, default=4, help="number of different shared prefixes")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slo-ttft-ms", type=float, default=1000.0)
    parser.add_argument("--slo-itl-ms", type=float, default=100.0)
    parser.add_argument("--timeout-s", type=float, default=120.0, help="longest silence of one stream")


def run(options: argparse.Namespace, argv: Sequence[str], json_path: Path | None) -> int:
    """Exit status 0 when at least one request completed."""
    facts = machine_facts()
    results = asyncio.run(_measure(options))
    publish(Report("serve", tuple(argv), facts, results, _tables(results)), json_path)
    return 0 if results.summary.completed else 1


async def _measure(given: argparse.Namespace) -> ServeResults:
    target = LoadTarget(given.url.rstrip("/"), given.model, given.max_tokens, given.api_key)
    async with open_http(target, given.timeout_s) as http:
        model = given.model or await _first_model(http, target.url)
        options = _options(given, model)
        target = LoadTarget(target.url, model, options.max_tokens, given.api_key)
        outcomes = await _drive(http, target, options)
    return ServeResults(options, summarize(outcomes, options.slo), tuple(outcomes))


def _options(given: argparse.Namespace, model: str) -> ServeOptions:
    return ServeOptions(
        url=given.url,
        model=model,
        rate_per_s=_SMOKE_RATE_PER_S if given.smoke else given.rate,
        requests=_SMOKE_REQUESTS if given.smoke else given.requests,
        max_tokens=_SMOKE_MAX_TOKENS if given.smoke else given.max_tokens,
        mix=PromptMix(given.prompt_words, given.shared_prefix, given.prefix_groups),
        seed=given.seed,
        slo=Slo(given.slo_ttft_ms / 1000.0, given.slo_itl_ms / 1000.0),
        timeout_s=given.timeout_s,
    )


async def _drive(http: httpx.AsyncClient, target: LoadTarget, options: ServeOptions) -> list[RequestOutcome]:
    arrivals = poisson_arrivals(options.rate_per_s, options.requests, options.seed)
    prompts = make_prompts(options.mix, options.requests, options.seed)
    client = LoadClient(http, target, time.perf_counter())
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(client.request_at(arrival, prompt), name=f"bench-request-{number}")
            for number, (arrival, prompt) in enumerate(zip(arrivals, prompts, strict=True))
        ]
    return [task.result() for task in tasks]


async def _first_model(http: httpx.AsyncClient, url: str) -> str:
    response = await http.get(f"{url}/v1/models")
    response.raise_for_status()
    return str(response.json()["data"][0]["id"])


def _tables(results: ServeResults) -> tuple[TableText, ...]:
    summary, options = results.summary, results.options
    latency = tuple(
        _latency_row(name, values)
        for name, values in (("TTFT", summary.ttft_s), ("ITL", summary.itl_s), ("E2E", summary.e2e_s))
    )
    errors = ", ".join(f"{count} x {kind}" for kind, count in sorted(summary.errors.items())) or "none"
    objective = f"TTFT <= {options.slo.ttft_s * 1000:.0f} ms, ITL <= {options.slo.itl_s * 1000:.0f} ms"
    totals = (
        ("requests", f"{summary.completed} of {summary.requests} completed at {options.rate_per_s:g}/s offered"),
        ("errors", errors),
        ("throughput", f"{summary.requests_per_s:.2f} requests/s, {summary.output_tokens_per_s:.1f} output tokens/s"),
        ("cached prompt tokens", f"{summary.cached_token_share:.0%}"),
        ("goodput", f"{summary.goodput_per_s:.2f} requests/s ({summary.good}/{summary.requests}) at {objective}"),
        ("latest send", f"{summary.send_lag_s * 1000:.1f} ms after its arrival"),
    )
    columns = ("milliseconds", "mean", "p50", "p90", "p99", "max")
    return (TableText("serve", ("", options.model), totals), TableText("latency from arrival", columns, latency))


def _latency_row(name: str, values: Distribution | None) -> tuple[str, ...]:
    if values is None:
        return (name, *figures([None] * 5, 1))
    seconds = (values.mean, values.p50, values.p90, values.p99, values.maximum)
    return (name, *figures([value * 1000.0 for value in seconds], 1))


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))
