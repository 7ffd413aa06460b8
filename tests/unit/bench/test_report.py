import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from kvarn_bench.facts import machine_facts
from kvarn_bench.report import Report, TableText, figures, publish


@dataclass(frozen=True)
class Results:
    speed: float


def test_figures_not_measured_are_dashes() -> None:
    assert figures([1234.56, None], 1) == ("1,234.6", "-")


def test_prints_the_table_and_writes_json_with_machine_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = TableText("speed", ("size", "GB/s"), (("4", "1.5"),))
    target = tmp_path / "out.json"
    publish(Report("handoff", ("handoff", "--smoke"), machine_facts(), Results(1.5), (table,)), target)
    assert "1.5" in capsys.readouterr().out
    document = json.loads(target.read_text(encoding="utf-8"))
    assert document["command"] == "python -m kvarn_bench handoff --smoke"
    assert document["results"] == {"speed": 1.5}
    assert document["machine"]["cores"] >= 1
    assert document["machine"]["cpu"]
    assert document["machine"]["versions"]["grpcio"]
