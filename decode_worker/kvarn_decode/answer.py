"""One request's stream of events to its router, and what the metrics learn from it.

Called by the generator. It does not know where tokens come from.
"""

import time
from collections.abc import Sequence

import grpc.aio
from kvarn_engine.core.sampling import FinishReason, SampledToken
from kvarn_engine.serving.worker_metrics import WorkerMetrics
from kvarn_engine.wire.convert import finish_reason_to_proto, tokens_to_proto
from kvarn_proto.v1 import decode_pb2

GenerateContext = grpc.aio.ServicerContext[decode_pb2.GenerateRequest, decode_pb2.GenerateEvent]


class Answer:
    def __init__(self, context: GenerateContext, metrics: WorkerMetrics) -> None:
        self._context = context
        self._metrics = metrics
        self._arrived_at = time.perf_counter()
        self._last_token_at: dict[int, float] = {}  # by choice

    async def accepted(self, cached_tokens: int) -> None:
        await self._send(decode_pb2.GenerateEvent(accepted=decode_pb2.GenerateAccepted(cached_tokens=cached_tokens)))

    async def tokens(self, choice: int, tokens: Sequence[SampledToken]) -> None:
        self._observe(choice, len(tokens))
        message = decode_pb2.ChoiceTokens(choice=choice, tokens=tokens_to_proto(tokens))
        await self._send(decode_pb2.GenerateEvent(tokens=message))

    async def finished(self, choice: int, reason: FinishReason) -> None:
        message = decode_pb2.ChoiceFinished(choice=choice, reason=finish_reason_to_proto(reason))
        await self._send(decode_pb2.GenerateEvent(finished=message))

    async def done(self, done: decode_pb2.GenerateDone) -> None:
        await self._send(decode_pb2.GenerateEvent(done=done))

    def _observe(self, choice: int, count: int) -> None:
        now = time.perf_counter()
        if not self._last_token_at:
            self._metrics.ttft_s.observe(now - self._arrived_at)
        if choice in self._last_token_at:
            self._metrics.itl_s.observe((now - self._last_token_at[choice]) / count)
        self._last_token_at[choice] = now
        self._metrics.output_tokens.inc(count)

    async def _send(self, event: decode_pb2.GenerateEvent) -> None:
        await self._context.write(event)
