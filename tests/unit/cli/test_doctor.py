"""The doctor's checks, and its exit status without a server."""

import asyncio
import dataclasses
from typing import Any

import pytest
from kvarn_cli.doctor import QUIET_LIMIT_S, check_models, check_router, check_workers, run_doctor
from kvarn_cli.router_view import WorkerRow, parse_workers
from rich.console import Console

PREFILL = WorkerRow("prefill-0", "prefill", "127.0.0.1:1", "i1", "live", "layout", "render", 0.5, 3, "")
DECODE = dataclasses.replace(PREFILL, worker_id="decode-0", role="decode", address="127.0.0.1:2", incarnation="i2")


def problems(*rows: WorkerRow) -> list[str]:
    return [f"{finding.what} -> {finding.fix}" for finding in check_workers(rows) if not finding.ok]


def test_a_healthy_pair_has_no_problem() -> None:
    assert problems(PREFILL, DECODE) == []
    assert all(finding.ok for finding in check_router(200, 200))
    assert all(finding.ok for finding in check_models(["m"]))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([DECODE], "no prefill worker"),
        ([PREFILL], "no decode worker"),
        ([PREFILL, dataclasses.replace(DECODE, last_event_age_s=QUIET_LIMIT_S + 1)], "last event 16 s ago"),
        ([PREFILL, dataclasses.replace(DECODE, state="draining")], "decode-0 is draining"),
        ([PREFILL, dataclasses.replace(DECODE, layout_fingerprint="other")], "layout fingerprints differ"),
        ([PREFILL, dataclasses.replace(DECODE, render_fingerprint="other")], "render fingerprints differ"),
        ([PREFILL, DECODE, dataclasses.replace(DECODE, worker_id="", refused="fingerprint a, not b")], "same --model"),
        (
            [PREFILL, DECODE, dataclasses.replace(DECODE, worker_id="", refused="it does not answer (UNAVAILABLE)")],
            "check that a worker",
        ),
    ],
)
def test_problems_are_named(rows: list[WorkerRow], expected: str) -> None:
    assert any(expected in problem for problem in problems(*rows))


def test_a_router_that_is_not_ready_is_a_problem() -> None:
    assert [finding.ok for finding in check_router(200, 503)] == [True, False]
    assert not next(check_models([])).ok


def test_without_a_router_the_exit_status_is_1() -> None:
    console = Console(record=True, width=200)
    assert run_doctor("http://127.0.0.1:1", "", console) == 1
    assert "kvarn up" in console.export_text()


async def test_a_router_with_keys_asks_for_one(serve: Any) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        is_open = scope["path"] in ("/health", "/ready", "/debug/workers")
        await send({"type": "http.response.start", "status": 200 if is_open else 401, "headers": []})
        await send({"type": "http.response.body", "body": b'{"workers": [], "refused": []}'})

    url, console = await serve(refuse), Console(record=True, width=200)
    assert await asyncio.to_thread(run_doctor, url, "", console) == 1
    assert "give it with --api-key" in console.export_text()


def test_rows_are_read_from_what_the_router_says() -> None:
    live = {
        "worker_id": "decode-0", "role": "decode", "address": "a:1", "incarnation": "i", "draining": False,
        "suspect": True, "layout_fingerprint": "l", "render_fingerprint": "r", "index_blocks": 7,
    }  # fmt: skip
    first, second = parse_workers({"workers": [live], "refused": [{"address": "b:2", "reason": "no answer"}]})
    assert (first.address, first.state, first.indexed_blocks, first.refused) == ("a:1", "suspect", 7, "")
    assert (second.address, second.state, second.refused) == ("b:2", "refused", "no answer")
    with pytest.raises(TypeError):
        parse_workers([])
