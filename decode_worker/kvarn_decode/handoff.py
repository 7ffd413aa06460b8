"""The whole hand-off of one request: peers in turn, until every block and the first tokens are here or none is left.

Called by the generator. Blocks that arrived whole are kept from one attempt to the next; a peer's failure is never the
request's failure, because this worker can always compute what is missing.
"""

import logging
import secrets
import time
from dataclasses import dataclass

import grpc.aio
from kvarn_engine.core.errors import EngineError, HandoffError
from kvarn_engine.core.ids import TransferId, WorkerId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.serving.protocol import Generation
from kvarn_engine.wire.convert import sampling_to_proto
from kvarn_engine.wire.frames import Transfer
from kvarn_engine.wire.prefill_rpc import run_prefill
from kvarn_engine.wire.status import error_from_call
from kvarn_proto.v1 import prefill_pb2

from kvarn_decode.importer import DrawnTokens, Importer, ImportReport, OnFirstTokens
from kvarn_decode.peers import PeerChannels
from kvarn_decode.request import DecodeRequest, Peer

logger = logging.getLogger("kvarn.handoff")


@dataclass(frozen=True, slots=True)
class HandoffLimits:
    layout: KvLayout
    idle_timeout_s: float


@dataclass(slots=True)
class HandoffReport:
    """What the request's closing event says of its hand-off."""

    prefill_worker_id: WorkerId | None = None
    cached_tokens: int = 0
    received_bytes: int = 0
    handoff_s: float = 0.0
    exposed_s: float = 0.0
    failures: int = 0


class Handoff:
    def __init__(
        self, request: DecodeRequest, generation: Generation, channels: PeerChannels, limits: HandoffLimits,
        forward: OnFirstTokens,
    ) -> None:
        self._request = request
        self._generation = generation
        self._channels = channels
        self._limits = limits
        self._forward = forward
        self._transfer_id = TransferId(secrets.token_bytes(16))
        self._first_tokens: DrawnTokens = ()
        self.report = HandoffReport()

    @property
    def first_tokens(self) -> DrawnTokens:
        """Already forwarded. Empty until a peer has sent them."""
        return self._first_tokens

    @property
    def num_blocks(self) -> int:
        return -(-len(self._request.prefill_tokens) // self._limits.layout.block_size)

    @property
    def complete(self) -> bool:
        return bool(self._first_tokens) and self._generation.received_blocks >= self.num_blocks

    async def run(self) -> None:
        """Returns when everything arrived or no peer is left; the engine computes what is missing."""
        began = time.perf_counter()
        for number, peer in enumerate(self._request.peers, start=1):
            await self._attempt(peer, number)
            if self.complete:
                self.report.prefill_worker_id = peer.worker_id
                break
            self.report.failures += 1
        self.report.handoff_s = time.perf_counter() - began

    async def _attempt(self, peer: Peer, number: int) -> None:
        transfer = Transfer(self._transfer_id, number, self._limits.layout)
        importer = Importer(self._generation, transfer, self._take_first_tokens, self._limits.idle_timeout_s)
        try:
            with self._channels.use(peer.address) as channel:
                call = run_prefill(channel, self._message(transfer), self._request.spec.request_id)
                await importer.run(call)
            if not self.complete:
                raise HandoffError("done frame came before every block and first token")
        except grpc.aio.AioRpcError as error:
            self._log_failure(peer, number, error_from_call(error))
        except EngineError as error:
            self._log_failure(peer, number, error)
        finally:
            self._account(importer.report)

    async def _take_first_tokens(self, tokens: DrawnTokens) -> None:
        """Forward them once. A later peer draws the same ones, because draws are keyed by position."""
        wanted = {choice.index for choice in self._request.spec.choices}
        if {choice for choice, _ in tokens} != wanted or len(tokens) != len(wanted):
            raise HandoffError("first tokens are not for the choices asked for")
        if not self._first_tokens:
            self._first_tokens = tokens
            await self._forward(tokens)

    def _message(self, transfer: Transfer) -> prefill_pb2.PrefillRequest:
        spec = self._request.spec
        return prefill_pb2.PrefillRequest(
            request_id=spec.request_id,
            transfer_id=transfer.transfer_id,
            generation=transfer.generation,
            tokens=self._request.prefill_tokens,
            num_prompt_tokens=len(spec.prompt_tokens),
            sampling=sampling_to_proto(spec.sampling),
            choices=[choice.index for choice in spec.choices],
            have_blocks=self._generation.received_blocks,
            layout_fingerprint=transfer.layout.fingerprint,
            root_hash=spec.root_hash,
            priority=spec.priority,
        )

    def _account(self, attempt: ImportReport) -> None:
        """Prefix tokens that a lost peer had cached but never sent are computed again, so they do not count."""
        received_tokens = self._generation.received_blocks * self._limits.layout.block_size
        self.report.cached_tokens = max(self.report.cached_tokens, min(attempt.cached_tokens, received_tokens))
        self.report.received_bytes += attempt.received_bytes
        if attempt.first_tokens_at is not None and attempt.last_block_at is not None:
            self.report.exposed_s += max(0.0, attempt.last_block_at - attempt.first_tokens_at)

    def _log_failure(self, peer: Peer, number: int, error: EngineError) -> None:
        logger.warning(
            "hand-off attempt failed",
            extra={
                "request_id": self._request.spec.request_id,
                "peer": peer.worker_id,
                "attempt": number,
                "reason": type(error).__name__,
                "detail": str(error),
                "received_blocks": self._generation.received_blocks,
            },
        )
