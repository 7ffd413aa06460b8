"""`python -m kvarn_bench scaling`: autoscalers on simulated fleets, objective attainment against GPU-hours."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvarn_bench.facts import machine_facts
from kvarn_bench.report import Report, TableText, publish
from kvarn_bench.scaling_fleet import Fleet, Outcome, token_interval_s
from kvarn_bench.scaling_kvarn import KvarnController
from kvarn_bench.scaling_peers import (
    AibrixController,
    DynamoThroughputController,
    FixedController,
    HpaController,
    LlmdController,
)
from kvarn_bench.scaling_pods import Hardware, Request
from kvarn_bench.scaling_trace import Trace, bursty, diurnal, shifting
from kvarn_bench.scaling_view import Controller, Limits, Replicas


@dataclass(frozen=True, slots=True)
class ScalingFigure:
    trace: str
    controller: str
    requests: int
    ttft_attained: float
    itl_attained: float
    both_attained: float
    gpu_hours: float
    changes: int
    reversals: int


@dataclass(frozen=True, slots=True)
class ScalingResults:
    limits: Limits
    hardware: Hardware
    duration_s: float
    seed: int
    figures: tuple[ScalingFigure, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--duration-s", type=float, default=3600.0, help="simulated seconds of each trace")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slo-ttft-ms", type=float, default=2000.0)
    parser.add_argument("--slo-itl-ms", type=float, default=25.0)
    parser.add_argument("--maximum", type=int, default=12, help="pods per pool")
    parser.add_argument("--gpus", type=int, default=24, help="budget of both pools, for controllers that know one")
    parser.add_argument("--start-delay-s", type=float, default=90.0, help="from the decision to a pod that serves")


def run(options: argparse.Namespace, argv: Sequence[str], json_path: Path | None) -> int:
    duration = 600.0 if options.smoke else options.duration_s
    limits = Limits(1, options.maximum, options.gpus, options.slo_ttft_ms / 1000.0, options.slo_itl_ms / 1000.0)
    hardware = Hardware(start_delay_s=options.start_delay_s)
    figures = tuple(
        _figure(trace, make(), hardware, limits)
        for trace in (make_trace(duration, options.seed) for make_trace in (bursty, diurnal, shifting))
        for make in _contenders(limits, hardware)
    )
    results = ScalingResults(limits, hardware, duration, options.seed, figures)
    publish(Report("scaling", tuple(argv), machine_facts(), results, _tables(results)), json_path)
    return 0


def _contenders(limits: Limits, hardware: Hardware) -> tuple[Callable[[], Controller], ...]:
    return (
        lambda: KvarnController(limits, hardware),
        lambda: HpaController(limits),
        lambda: DynamoThroughputController(limits, hardware),
        lambda: LlmdController(limits, hardware),
        lambda: LlmdController(limits, hardware, fast=True),
        lambda: AibrixController(limits),
        lambda: FixedController(limits),
    )


def _figure(trace: Trace, controller: Controller, hardware: Hardware, limits: Limits) -> ScalingFigure:
    fixed = isinstance(controller, FixedController)
    start = Replicas(limits.maximum, limits.maximum) if fixed else Replicas(2, 2)
    outcome = Fleet(trace, controller, hardware, start).run()
    return summarize(trace.name, controller.name, outcome, limits)


def summarize(trace: str, controller: str, outcome: Outcome, limits: Limits) -> ScalingFigure:
    """A request that never ended missed both objectives."""
    in_ttft = [_ttft_met(request, limits) for request in outcome.requests]
    in_itl = [request.done_at is not None and token_interval_s(request) <= limits.itl_s for request in outcome.requests]
    count = max(len(outcome.requests), 1)
    return ScalingFigure(
        trace, controller, len(outcome.requests), sum(in_ttft) / count, sum(in_itl) / count,
        sum(first and rest for first, rest in zip(in_ttft, in_itl, strict=True)) / count,
        outcome.gpu_s / 3600.0, outcome.changes, outcome.reversals,
    )  # fmt: skip


def _ttft_met(request: Request, limits: Limits) -> bool:
    return request.first_token_at is not None and request.first_token_at - request.arrival.at <= limits.ttft_s


def _tables(results: ScalingResults) -> tuple[TableText, ...]:
    columns = ("controller", "TTFT met", "ITL met", "both met", "GPU-hours", "changes", "reversals")
    names = dict.fromkeys(figure.trace for figure in results.figures)
    return tuple(
        TableText(_title(name, results), columns, tuple(_row(each) for each in results.figures if each.trace == name))
        for name in names
    )


def _title(trace: str, results: ScalingResults) -> str:
    count = next(figure.requests for figure in results.figures if figure.trace == trace)
    return f"{trace}: {count} requests in {results.duration_s:g} s"


def _row(figure: ScalingFigure) -> tuple[str, ...]:
    shares = (figure.ttft_attained, figure.itl_attained, figure.both_attained)
    return (
        figure.controller, *(f"{share:.1%}" for share in shares), f"{figure.gpu_hours:.2f}", str(figure.changes),
        str(figure.reversals),
    )  # fmt: skip
