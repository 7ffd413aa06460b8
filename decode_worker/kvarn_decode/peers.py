"""One channel for each prefill peer, kept open between requests. Owned by the Decode service, which closes it.

A channel lives with the TLS files that it was opened with: when they are renewed, the next call gets a new channel and
the old one goes once its last call has ended.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc.aio
from kvarn_engine.wire.channels import ChannelSettings, open_channel
from kvarn_engine.wire.tls import Certificates, TlsFiles

MAX_CHANNELS = 256
"""Addresses of workers long gone must not pile up; the least recently used channel goes first."""


@dataclass(slots=True, eq=False)
class PeerChannel:
    channel: grpc.aio.Channel
    certificates: Certificates | None
    calls: int = 0


class PeerChannels:
    def __init__(self, settings: ChannelSettings, tls: TlsFiles | None = None) -> None:
        self._settings = settings
        self._tls = tls
        self._channels: OrderedDict[str, PeerChannel] = OrderedDict()
        self._retired: list[PeerChannel] = []

    @contextmanager
    def use(self, address: str) -> Iterator[grpc.aio.Channel]:
        """The channel to `address`, for one call that ends inside."""
        peer = self._current(address)
        peer.calls += 1
        try:
            yield peer.channel
        finally:
            peer.calls -= 1

    async def trim(self) -> None:
        """Close channels over the bound, and retired ones without a call. Called between requests; a call on a channel
        that is closed under it ends as a lost peer."""
        while len(self._channels) > MAX_CHANNELS:
            _, oldest = self._channels.popitem(last=False)
            await oldest.channel.close(None)
        unused = [peer for peer in self._retired if peer.calls == 0]
        self._retired = [peer for peer in self._retired if peer.calls]
        await asyncio.gather(*(peer.channel.close(None) for peer in unused))

    async def close(self) -> None:
        peers = [*self._channels.values(), *self._retired]
        self._channels.clear()
        self._retired.clear()
        await asyncio.gather(*(peer.channel.close(None) for peer in peers))

    def _current(self, address: str) -> PeerChannel:
        certificates = None if self._tls is None else self._tls.current()
        peer = self._channels.get(address)
        if peer is not None and peer.certificates is not certificates:
            self._retired.append(peer)
            peer = None
        if peer is None:
            peer = PeerChannel(open_channel(address, self._settings, self._tls), certificates)
            self._channels[address] = peer
        self._channels.move_to_end(address)
        return peer
