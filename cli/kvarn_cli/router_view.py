"""What a router says of itself and its workers over HTTP. Used by `up` and `doctor`."""

from dataclasses import dataclass

import httpx


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker as the router sees it."""

    worker_id: str
    role: str
    address: str
    incarnation: str
    state: str
    layout_fingerprint: str
    render_fingerprint: str
    last_event_age_s: float | None
    refused: str
    """Why the router did not let it in; empty when it did."""


class RouterUnreachable(Exception):
    """Nothing that speaks the router's API answers at the address."""


def fetch_status(client: httpx.Client, path: str) -> int:
    """Raises RouterUnreachable."""
    try:
        return client.get(path).status_code
    except httpx.HTTPError as error:
        raise RouterUnreachable(f"{client.base_url}: {error or type(error).__name__}") from error


def fetch_models(client: httpx.Client) -> list[str]:
    """Raises RouterUnreachable."""
    try:
        response = client.get("/v1/models")
        return [str(model["id"]) for model in response.raise_for_status().json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise RouterUnreachable(f"{client.base_url}/v1/models: {error or type(error).__name__}") from error


def fetch_workers(client: httpx.Client) -> list[WorkerRow]:
    """Raises RouterUnreachable."""
    try:
        return parse_workers(client.get("/debug/workers").raise_for_status().json())
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise RouterUnreachable(f"{client.base_url}/debug/workers: {error or type(error).__name__}") from error


def parse_workers(content: object) -> list[WorkerRow]:
    """Raises KeyError, TypeError or ValueError when the content is something else."""
    rows = content["workers"] if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise TypeError("not a list of workers")
    return [_row(row) for row in rows]


def _row(row: dict[str, object]) -> WorkerRow:
    def text(name: str) -> str:
        value = row.get(name)
        return "" if value is None else str(value)

    age = row.get("last_event_age_s")
    return WorkerRow(
        worker_id=text("worker_id"),
        role=text("role"),
        address=str(row["address"]),
        incarnation=text("incarnation"),
        state=text("state"),
        layout_fingerprint=text("layout_fingerprint"),
        render_fingerprint=text("render_fingerprint"),
        last_event_age_s=float(age) if isinstance(age, int | float) else None,
        refused=text("refused"),
    )
