"""Worker source of `--workers`: addresses that never change."""

from collections.abc import AsyncGenerator, Sequence

from kvarn_router.discovery.endpoint import Endpoint, EndpointKey


class StaticList:
    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(dict.fromkeys(addresses))

    async def snapshots(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        yield tuple(Endpoint(EndpointKey(address), address) for address in self._addresses)
