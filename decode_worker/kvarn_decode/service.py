"""The Decode service: one Generate call is one request.

Called by routers. A router that cancels the call cancels this coroutine: leaving the generator frees the blocks here
and cancels the prefill peer's stream, which frees them there.
"""

import logging

import grpc.aio
from kvarn_engine.core.ids import RequestId
from kvarn_engine.serving.worker_app import WorkerParts
from kvarn_engine.serving.worker_errors import errors_as_status
from kvarn_engine.wire.channels import ChannelSettings
from kvarn_engine.wire.tls import TlsFiles
from kvarn_proto.v1 import decode_pb2, decode_pb2_grpc

from kvarn_decode.answer import Answer, GenerateContext
from kvarn_decode.generator import Generator, Surroundings
from kvarn_decode.peers import PeerChannels
from kvarn_decode.request import DecodeRequest, read_request
from kvarn_decode.running import RunningRequests
from kvarn_decode.settings import HandoffSettings

StopChoiceContext = grpc.aio.ServicerContext[decode_pb2.StopChoiceRequest, decode_pb2.StopChoiceResponse]

logger = logging.getLogger("kvarn.decode")


class DecodeService(decode_pb2_grpc.DecodeServicer):
    service_name = "kvarn.v1.Decode"

    def __init__(self, parts: WorkerParts, settings: HandoffSettings, tls: TlsFiles | None = None) -> None:
        self._parts = parts
        self._channels = PeerChannels(ChannelSettings(), tls)
        self._running = RunningRequests()
        self._surroundings = Surroundings(parts.engine, self._channels, self._running, settings)

    def register(self, server: grpc.aio.Server) -> None:
        decode_pb2_grpc.add_DecodeServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        await self._channels.close()

    async def Generate(self, request: decode_pb2.GenerateRequest, context: GenerateContext) -> None:
        async with errors_as_status(context, request.request_id):
            with self._parts.gate.admit():
                await self._generate(read_request(request), context)
                await self._channels.trim()

    async def StopChoice(
        self, request: decode_pb2.StopChoiceRequest, context: StopChoiceContext
    ) -> decode_pb2.StopChoiceResponse:
        found = self._running.stop_choice(RequestId(request.request_id), request.choice)
        return decode_pb2.StopChoiceResponse(found=found)

    async def _generate(self, request: DecodeRequest, context: GenerateContext) -> None:
        generator = Generator(self._surroundings, request, Answer(context, self._parts.metrics))
        try:
            await generator.run()
        finally:
            self._observe(request, generator)

    def _observe(self, request: DecodeRequest, generator: Generator) -> None:
        metrics, done = self._parts.metrics, generator.done
        outcome = "ok" if generator.finished else "aborted"
        metrics.requests.labels(outcome).inc()
        metrics.prompt_tokens.inc(len(request.spec.prompt_tokens))
        metrics.prefix_hit_tokens.inc(done.cached_tokens)
        metrics.preemptions.inc(done.preemptions)
        metrics.handoff_failures.inc(generator.report.failures)
        metrics.handoff_bytes.inc(generator.report.received_bytes)
        metrics.queue_s.observe(done.queue_s)
        if done.prefill_worker_id:
            metrics.handoff_s.observe(done.handoff_s)
            metrics.handoff_exposed_s.observe(done.exposed_handoff_s)
        logger.info(
            "request ended",
            extra={
                "request_id": request.spec.request_id,
                "outcome": outcome,
                "prompt_tokens": len(request.spec.prompt_tokens),
                "cached_tokens": done.cached_tokens,
                "prefill_worker": done.prefill_worker_id,
                "handoff_s": round(done.handoff_s, 4),
                "preemptions": done.preemptions,
            },
        )
