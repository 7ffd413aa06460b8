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
    """None when the router does not say."""

    indexed_blocks: int
    """Cached blocks that the router knows of, from the worker's events."""

    refused: str
    """Why the router did not let it in; empty when it did."""


class RouterUnreachable(Exception):
    """Nothing that speaks the router's API answers at the address."""


class KeyNeeded(RouterUnreachable):
    """It answers to those who give one of its API keys."""


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
        if response.status_code == httpx.codes.UNAUTHORIZED:
            raise KeyNeeded(f"{client.base_url} wants an API key")
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
    """Registered workers, then refused ones. Raises KeyError, TypeError or ValueError for other content."""
    if not isinstance(content, dict):
        raise TypeError("not an object")
    return [_live(row) for row in content["workers"]] + [_refused(row) for row in content["refused"]]


def _live(row: dict[str, object]) -> WorkerRow:
    age, blocks = row.get("last_event_age_s"), row["index_blocks"]
    return WorkerRow(
        worker_id=str(row["worker_id"]),
        role=str(row["role"]),
        address=str(row["address"]),
        incarnation=str(row["incarnation"]),
        state="draining" if row["draining"] else "suspect" if row["suspect"] else "live",
        layout_fingerprint=str(row["layout_fingerprint"]),
        render_fingerprint=str(row["render_fingerprint"]),
        last_event_age_s=float(age) if isinstance(age, int | float) else None,
        indexed_blocks=blocks if isinstance(blocks, int) else 0,
        refused="",
    )


def _refused(row: dict[str, object]) -> WorkerRow:
    return WorkerRow("", "", str(row["address"]), "", "refused", "", "", None, 0, str(row["reason"]))
