"""A benchmark's result: a table for people, a JSON file for machines. Every command ends here."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from kvarn_bench.facts import MachineFacts

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class TableText:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Report:
    benchmark: str
    argv: tuple[str, ...]
    machine: MachineFacts
    results: "DataclassInstance"
    tables: tuple[TableText, ...]


def publish(report: Report, json_path: Path | None) -> None:
    console = Console()
    for table in report.tables:
        console.print(_table(table))
    facts = report.machine
    console.print(f"{facts.cpu}, {facts.cores} cores, load {facts.load_average:.1f}, python {facts.python}")
    if json_path is not None:
        json_path.write_text(json.dumps(_document(report), indent=2) + "\n", encoding="utf-8")


def _document(report: Report) -> dict[str, object]:
    return {
        "benchmark": report.benchmark,
        "command": shlex.join(["python", "-m", "kvarn_bench", *report.argv]),
        "machine": asdict(report.machine),
        "results": asdict(report.results),
    }


def _table(text: TableText) -> Table:
    table = Table(title=text.title, title_justify="left")
    for number, column in enumerate(text.columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in text.rows:
        table.add_row(*row)
    return table


def figures(values: Sequence[float | None], digits: int) -> tuple[str, ...]:
    """A dash for what was not measured."""
    return tuple("-" if value is None else f"{value:,.{digits}f}" for value in values)
