"""What discovery says: the endpoints there are now. The registrar follows them; a source knows nothing of workers."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import NewType, Protocol

from kvarn_engine.core.ids import WorkerId

EndpointKey = NewType("EndpointKey", str)
"""Identity of an endpoint over time: a pod's UID, else its address. An address under another key is another worker."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    key: EndpointKey
    address: str
    """host:port"""

    draining: bool = False
    """No new work for it, whatever the worker itself says; what runs on it may finish."""

    worker_id: WorkerId | None = None
    """Who must answer there, where discovery knows: an address may have passed to a worker of another model."""


class WorkerSource(Protocol):
    def snapshots(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        """The full set at the start and after each change. One that ends means: it stays as it is.

        Whoever iterates closes the generator, which frees what the source holds.
        """
        ...
