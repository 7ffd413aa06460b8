"""`Prefill.Run`: one stream is one hand-off.

Called by decode workers. The engine's prefill, and with it every pinned block, lives exactly as long as the call: a
client that cancels cancels this coroutine, and leaving the exit stack frees the blocks.
"""

import logging
import time
from contextlib import AsyncExitStack

import grpc.aio
from kvarn_engine.core.errors import InvalidRequest, LayoutMismatch
from kvarn_engine.core.ids import BlockHash, RequestId, TransferId
from kvarn_engine.serving.protocol import ChoiceSpec, RequestSpec
from kvarn_engine.serving.worker_app import WorkerParts
from kvarn_engine.serving.worker_errors import errors_as_status
from kvarn_engine.wire.convert import sampling_from_proto
from kvarn_engine.wire.frames import Transfer
from kvarn_engine.wire.prefill_rpc import SERVICE, RunContext, add_prefill_servicer
from kvarn_proto.v1 import prefill_pb2

from kvarn_prefill.exporter import Exporter, ExportReport

logger = logging.getLogger("kvarn.prefill")

DIGEST_BYTES = 16


class PrefillService:
    service_name = SERVICE

    def __init__(self, parts: WorkerParts, heartbeat_s: float) -> None:
        self._parts = parts
        self._heartbeat_s = heartbeat_s

    def register(self, server: grpc.aio.Server) -> None:
        add_prefill_servicer(self, server)

    async def close(self) -> None:
        """Nothing is held between calls."""

    async def Run(self, request: prefill_pb2.PrefillRequest, context: RunContext) -> None:
        async with errors_as_status(context, request.request_id):
            with self._parts.gate.admit():
                await self._run(request, context)

    async def _run(self, request: prefill_pb2.PrefillRequest, context: RunContext) -> None:
        engine = self._parts.engine
        spec = read_request(request, engine.layout.fingerprint)
        transfer = Transfer(TransferId(request.transfer_id), request.generation, engine.layout)
        exporter = Exporter(engine, transfer, context.write, self._heartbeat_s)
        began = time.perf_counter()
        try:
            async with AsyncExitStack() as stack:
                opening = engine.open_prefill(spec, request.num_prompt_tokens, request.have_blocks)
                prefill = await exporter.open(opening, stack)
                self._parts.metrics.prompt_tokens.inc(request.num_prompt_tokens)
                self._parts.metrics.prefix_hit_tokens.inc(prefill.cached_tokens)
                await exporter.run(prefill)
        finally:
            self._observe(spec, exporter.report, time.perf_counter() - began)

    def _observe(self, spec: RequestSpec, report: ExportReport, elapsed_s: float) -> None:
        metrics = self._parts.metrics
        outcome = "ok" if report.finished else "aborted"
        metrics.requests.labels(outcome).inc()
        metrics.handoff_bytes.inc(report.sent_bytes)
        metrics.handoff_s.observe(elapsed_s)
        logger.info(
            "hand-off ended",
            extra={
                "request_id": spec.request_id,
                "outcome": outcome,
                "tokens": len(spec.prompt_tokens),
                "sent_bytes": report.sent_bytes,
                "seconds": round(elapsed_s, 4),
            },
        )


def read_request(request: prefill_pb2.PrefillRequest, layout_fingerprint: str) -> RequestSpec:
    """Raises LayoutMismatch or InvalidRequest for what a decode worker got wrong."""
    if request.layout_fingerprint != layout_fingerprint:
        raise LayoutMismatch(layout_fingerprint, request.layout_fingerprint)
    for field in ("transfer_id", "root_hash"):
        if len(getattr(request, field)) != DIGEST_BYTES:
            raise InvalidRequest(field, f"{field} must have {DIGEST_BYTES} bytes")
    if not 1 <= request.num_prompt_tokens <= len(request.tokens):
        raise InvalidRequest("num_prompt_tokens", f"num_prompt_tokens must be from 1 to {len(request.tokens)}")
    if not request.choices or len(set(request.choices)) != len(request.choices):
        raise InvalidRequest("choices", "choices must hold one or more distinct indexes")
    return RequestSpec(
        request_id=RequestId(request.request_id),
        prompt_tokens=tuple(request.tokens),
        sampling=sampling_from_proto(request.sampling),
        choices=tuple(ChoiceSpec(index) for index in request.choices),
        root_hash=BlockHash(request.root_hash),
        priority=request.priority,
    )
