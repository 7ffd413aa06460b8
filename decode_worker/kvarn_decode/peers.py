"""One channel for each prefill peer, kept open between requests. Owned by the Decode service, which closes it."""

import asyncio
from collections import OrderedDict

import grpc.aio
from kvarn_engine.wire.channels import ChannelSettings, open_channel

MAX_CHANNELS = 256
"""Addresses of workers long gone must not pile up; the least recently used channel goes first."""


class PeerChannels:
    def __init__(self, settings: ChannelSettings) -> None:
        self._settings = settings
        self._channels: OrderedDict[str, grpc.aio.Channel] = OrderedDict()

    def get(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = open_channel(address, self._settings)
            self._channels[address] = channel
        self._channels.move_to_end(address)
        return channel

    async def trim(self) -> None:
        """Close channels over the bound. Called between requests; a call on a closed channel ends as a lost peer."""
        while len(self._channels) > MAX_CHANNELS:
            _, oldest = self._channels.popitem(last=False)
            await oldest.close(None)

    async def close(self) -> None:
        channels = list(self._channels.values())
        self._channels.clear()
        await asyncio.gather(*(channel.close(None) for channel in channels))
