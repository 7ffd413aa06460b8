"""`kvarn doctor`: is the stack behind a URL well, and if not, what to do. The checks are pure; `run_doctor` asks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvarn_cli.router_view import KeyNeeded, RouterUnreachable, WorkerRow, fetch_models, fetch_status, fetch_workers

QUIET_LIMIT_S = 15.0
"""Workers report their load every few seconds; longer silence means that events do not flow."""


@dataclass(frozen=True, slots=True)
class Finding:
    ok: bool
    what: str
    fix: str = ""


def run_doctor(url: str, api_key: str, console: Console) -> int:
    """The exit status: 1 when something is wrong."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    rows: list[WorkerRow] = []
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=10.0) as client:
            findings = [*check_router(fetch_status(client, "/health"), fetch_status(client, "/ready"))]
            rows = fetch_workers(client)
            findings += [*check_models(fetch_models(client)), *check_workers(rows)]
    except KeyNeeded as error:
        findings = [Finding(False, str(error), "give it with --api-key")]
    except RouterUnreachable as error:
        fix = "start a stack with `kvarn up`, or give its address with --url"
        findings = [Finding(False, f"no answer: {error}", fix)]
    if rows:
        console.print(_table(rows))
    for finding in findings:
        mark = Text("ok    ", style="green") if finding.ok else Text("wrong ", style="bold red")
        console.print(mark + Text(finding.what), soft_wrap=True)
        if finding.fix:
            console.print(Text(f"      fix: {finding.fix}", style="yellow"), soft_wrap=True)
    return 0 if all(finding.ok for finding in findings) else 1


def check_router(health: int, ready: int) -> Iterator[Finding]:
    if health == httpx.codes.OK:
        yield Finding(True, "the router answers")
    else:
        yield Finding(False, f"/health answers {health}", "look at the router's log; restart it")
    if ready == httpx.codes.OK:
        yield Finding(True, "the router takes requests")
    else:
        yield Finding(False, f"/ready answers {ready}", "see the workers below: no set of workers can take a request")


def check_models(models: Sequence[str]) -> Iterator[Finding]:
    if models:
        yield Finding(True, f"serves {', '.join(models)}")
    else:
        yield Finding(False, "no model is listed", "give the router a model with --model")


def check_workers(rows: Sequence[WorkerRow]) -> Iterator[Finding]:
    """Registration, fingerprints and event flow."""
    for role, need in (
        ("decode", "nothing is served without it"),
        ("prefill", "prompts are prefilled on decode workers now"),
    ):
        count = sum(1 for row in rows if row.role == role and not row.refused)
        if count:
            yield Finding(True, f"{count} {role} worker(s) registered")
        else:
            yield Finding(False, f"no {role} worker", f"start one and name it in the router's --workers: {need}")
    for row in rows:
        yield from _check_worker(row)
    yield from _check_equal(rows, "layout", [row.layout_fingerprint for row in rows])
    yield from _check_equal(rows, "render", [row.render_fingerprint for row in rows])


def _check_worker(row: WorkerRow) -> Iterator[Finding]:
    name = row.worker_id or row.address
    if row.refused:
        yield Finding(False, f"{name} is not registered: {row.refused}", _refusal_fix(row))
    elif row.state != "live":
        yield Finding(False, f"{name} is {row.state}", "a draining or suspect worker gets no new requests; see its log")
    elif row.last_event_age_s is not None and row.last_event_age_s > QUIET_LIMIT_S:
        fix = "the worker hangs or the network drops its stream; restart it"
        yield Finding(False, f"{name}: last event {row.last_event_age_s:.0f} s ago", fix)
    else:
        yield Finding(True, f"{name}: events flow, {row.indexed_blocks} cached blocks in the index")


def _refusal_fix(row: WorkerRow) -> str:
    if "fingerprint" in row.refused.lower():
        return "give every worker and the router the same --model, --dtype and --block-size"
    return f"check that a worker listens at {row.address}, that it does not hang, and that the router can reach it"


def _check_equal(rows: Sequence[WorkerRow], kind: str, values: Sequence[str]) -> Iterator[Finding]:
    known = {value for row, value in zip(rows, values, strict=True) if value and not row.refused}
    if len(known) > 1:
        fix = "give every worker the same --model, --dtype and --block-size"
        yield Finding(False, f"{kind} fingerprints differ: {', '.join(sorted(known))}", fix)
    elif known:
        yield Finding(True, f"one {kind} fingerprint: {known.pop()[:16]}")


def _table(rows: Sequence[WorkerRow]) -> Table:
    table = Table("worker", "role", "address", "incarnation", "state", "indexed blocks")
    for row in rows:
        cells = (row.worker_id, row.role, row.address, row.incarnation, row.state, str(row.indexed_blocks))
        table.add_row(*(cell or "-" for cell in cells))
    return table
