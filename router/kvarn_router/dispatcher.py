"""Turns a request into a placement: a decode worker and its prefill peers, claimed at the instant of the choice.

Called by `stream` for every attempt. Knows the table and the index, not the wire.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from kvarn_engine.core.hashing import block_hashes, root_hash
from kvarn_engine.core.ids import BlockHash, Incarnation, RequestId, TokenId

from kvarn_router.decisions import DecisionLog
from kvarn_router.routing.cost import SaturationLimits, WorkerView
from kvarn_router.routing.policy import Decision, choose
from kvarn_router.routing.prefix_index import PrefixIndex
from kvarn_router.workers import LiveWorker, Role, WorkerTable


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an attempt needs placed."""

    request_id: RequestId
    tokens: Sequence[TokenId]
    """Prompt, and for a resumed stream of one choice its output so far."""

    salt: str
    use_peers: bool
    """False when the decode worker must prefill: a resumed request of several choices."""


@dataclass(slots=True)
class Placement:
    """One claimed choice. Whoever holds it calls `release`, once the attempt is over."""

    decode: LiveWorker
    peers: tuple[LiveWorker, ...]
    root: BlockHash
    decision: Decision
    decode_claim: ExitStack
    prefill_claim: ExitStack

    def prefill_ended(self) -> None:
        """The first token arrived: the prefill worker is done with this request."""
        self.prefill_claim.close()

    def release(self) -> None:
        self.prefill_claim.close()
        self.decode_claim.close()


class Dispatcher:
    def __init__(
        self,
        table: WorkerTable,
        index: PrefixIndex,
        decisions: DecisionLog,
        limits: SaturationLimits,
        render_fingerprint: str,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._index = index
        self._decisions = decisions
        self._limits = limits
        self._render_fingerprint = render_fingerprint
        self._clock = clock

    async def place(self, wanted: Wanted, wait_s: float) -> Placement | None:
        """Choose and claim, waiting up to `wait_s` for a decode worker to appear. None when none did."""
        deadline = self._clock() + wait_s
        while True:
            placement = self.try_place(wanted)
            if placement is not None:
                return placement
            remaining = deadline - self._clock()
            if remaining <= 0:
                return None
            try:
                async with asyncio.timeout(remaining):
                    await self._table.wait_changed()
            except TimeoutError:
                return None

    def try_place(self, wanted: Wanted, excluded: frozenset[Incarnation] = frozenset()) -> Placement | None:
        """Choose and claim now. No await in here: the load that the choice saw is the load that the claim adds to."""
        layout = self._table.layout()
        if layout is None:
            return None
        root = root_hash(self._render_fingerprint, layout.fingerprint, wanted.salt)
        hashes = block_hashes(root, wanted.tokens, layout.block_size)
        prefill = self._views(Role.PREFILL, hashes, frozenset()) if wanted.use_peers else ()
        decode = self._views(Role.DECODE, hashes, excluded)
        decision = choose(wanted.request_id, len(hashes), decode, prefill, self._limits)
        if decision is None:
            return None
        self._decisions.add(decision)
        return self._claim(wanted, decision, root, hashes, layout.block_size)

    def _views(
        self, role: Role, hashes: Sequence[BlockHash], excluded: frozenset[Incarnation]
    ) -> tuple[WorkerView, ...]:
        now = self._clock()
        return tuple(
            self._view(worker, hashes, now)
            for worker in self._table.candidates(role)
            if worker.identity.incarnation not in excluded
        )

    def _view(self, worker: LiveWorker, hashes: Sequence[BlockHash], now: float) -> WorkerView:
        load = worker.load
        return WorkerView(
            incarnation=worker.identity.incarnation,
            worker_id=worker.identity.worker_id,
            cached_blocks=self._index.match(worker.identity.incarnation, hashes, now).blocks,
            in_flight=worker.in_flight,
            in_flight_tokens=worker.in_flight_tokens,
            waiting=load.waiting,
            queued_prefill_tokens=load.queued_prefill_tokens,
            kv_usage=load.blocks_in_use / load.blocks_total if load.blocks_total else 0.0,
        )

    def _claim(
        self, wanted: Wanted, decision: Decision, root: BlockHash, hashes: Sequence[BlockHash], block_size: int
    ) -> Placement:
        decode = self._live(decision.decode_worker.incarnation)
        peers = tuple(self._live(incarnation) for incarnation in decision.prefill_peers)
        uncached = len(wanted.tokens) - decision.predicted_blocks * block_size
        decode_claim, prefill_claim = ExitStack(), ExitStack()
        decode_claim.enter_context(decode.claim(0 if peers else uncached))
        now = self._clock()
        self._index.predict(decode.identity.incarnation, hashes, now)
        if peers:
            prefill_claim.enter_context(peers[0].claim(uncached))
            self._index.predict(peers[0].identity.incarnation, hashes, now)
        return Placement(decode, peers, root, decision, decode_claim, prefill_claim)

    def _live(self, incarnation: Incarnation) -> LiveWorker:
        worker = self._table.get(incarnation)
        assert worker is not None, "a decision names only workers of the table it was made from"
        return worker
