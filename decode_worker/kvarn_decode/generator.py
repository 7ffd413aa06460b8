"""One request on a decode worker: match the prefix, bring the KV here or compute it, then stream tokens.

Called by the Decode service for each call. Everything it holds is freed when `run` is left, whatever the reason.
"""

import time
from dataclasses import dataclass

from kvarn_engine.serving.protocol import Engine, FinishedEvent, Generation, TokensEvent
from kvarn_proto.v1 import decode_pb2

from kvarn_decode.answer import Answer
from kvarn_decode.handoff import Handoff, HandoffLimits, HandoffReport
from kvarn_decode.importer import DrawnTokens
from kvarn_decode.peers import PeerChannels
from kvarn_decode.request import DecodeRequest
from kvarn_decode.running import RunningRequests
from kvarn_decode.settings import HandoffSettings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all requests of a worker share."""

    engine: Engine
    channels: PeerChannels
    running: RunningRequests
    settings: HandoffSettings


class Generator:
    def __init__(self, surroundings: Surroundings, request: DecodeRequest, answer: Answer) -> None:
        self._engine = surroundings.engine
        self._channels = surroundings.channels
        self._running = surroundings.running
        self._settings = surroundings.settings
        self._request = request
        self._answer = answer
        self.report = HandoffReport()
        self.done = decode_pb2.GenerateDone()
        self.finished = False
        """Set before the done event goes out: a router that has read it hangs up, which cancels this call."""

    async def run(self) -> None:
        began = time.perf_counter()
        async with self._engine.open_generation(self._request.spec) as generation:
            self.done.queue_s = time.perf_counter() - began
            with self._running.entry(self._request.spec.request_id, generation):
                cached_tokens = self._cached_tokens(generation)
                await self._answer.accepted(cached_tokens)
                if self._wants_peer(generation):
                    await self._import(generation)
                else:
                    await generation.start()
                await self._stream(generation)
            self._fill_done(cached_tokens, generation.preemptions)
        self.finished = True
        await self._answer.done(self.done)

    def _wants_peer(self, generation: Generation) -> bool:
        cached = generation.cached_blocks * self._engine.layout.block_size
        uncached = len(self._request.prefill_tokens) - cached
        return self._request.can_use_peers and uncached > self._settings.local_prefill_max_tokens

    async def _import(self, generation: Generation) -> None:
        limits = HandoffLimits(self._engine.layout, self._settings.handoff_idle_timeout_s)
        handoff = Handoff(self._request, generation, self._channels, limits, self._forward)
        self.report = handoff.report
        await generation.allocate_import(handoff.num_blocks)
        await handoff.run()
        await generation.start(handoff.first_tokens)

    async def _forward(self, tokens: DrawnTokens) -> None:
        """The router gets first tokens while the last blocks are still on their way."""
        for choice, token in tokens:
            await self._answer.tokens(choice, (token,))

    async def _stream(self, generation: Generation) -> None:
        async for event in generation.events():
            match event:
                case TokensEvent():
                    await self._answer.tokens(event.choice, event.tokens)
                case FinishedEvent():
                    await self._answer.finished(event.choice, event.reason)

    def _cached_tokens(self, generation: Generation) -> int:
        cached = generation.cached_blocks * self._engine.layout.block_size
        return min(cached, len(self._request.spec.prompt_tokens))

    def _fill_done(self, cached_tokens: int, preemptions: int) -> None:
        prompt_length = len(self._request.spec.prompt_tokens)
        self.done.cached_tokens = min(max(cached_tokens, self.report.cached_tokens), prompt_length)
        self.done.prefill_worker_id = self.report.prefill_worker_id or ""
        self.done.handoff_s = self.report.handoff_s
        self.done.exposed_handoff_s = self.report.exposed_s
        self.done.handoff_bytes = self.report.received_bytes
        self.done.preemptions = preemptions
