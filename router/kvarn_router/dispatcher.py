"""Turns a request into a placement: a decode worker and its prefill peers, claimed at the instant of the choice.

Called by `stream` for every attempt. Knows the table and the index, not the wire. Workers of several KV layouts may be
there at once, as in a rolling change of image, dtype or block size: each layout has hashes of its own, and peers share
the layout of the decode worker.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from kvarn_engine.core.hashing import block_hashes, root_hash
from kvarn_engine.core.ids import BlockHash, Incarnation, RequestId, TokenId

from kvarn_router.decisions import DecisionLog
from kvarn_router.errors import PromptTooLong
from kvarn_router.routing.cost import SaturationLimits, WorkerView
from kvarn_router.routing.policy import Decision, LayoutViews, choose
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

    num_prompt_tokens: int
    max_tokens: int
    """Output tokens of a choice."""

    min_room: int
    """Output tokens that a worker must have room for: fewer than `max_tokens` where its limit may cut the answer."""

    is_resumed: bool = False
    model_revision: str = ""
    """Weights that drew the output so far, which should draw the rest. Empty: there is no output yet."""

    def among(self, workers: Iterable[LiveWorker]) -> list[LiveWorker]:
        """Those that can run it. Where no vocabulary holds its tokens, the workers themselves say so."""
        needed, highest = self.num_prompt_tokens + self.min_room, max(self.tokens, default=0)
        long_enough = [worker for worker in workers if worker.identity.max_model_len >= needed]
        return [worker for worker in long_enough if worker.identity.vocab_size > highest] or long_enough

    def of_its_model(self, workers: Sequence[LiveWorker]) -> Sequence[LiveWorker]:
        """While a pool changes to other weights, an answer keeps to its own as long as a worker has them."""
        own = [worker for worker in workers if worker.identity.layout.model_revision == self.model_revision]
        return own or workers


@dataclass(slots=True)
class Placement:
    """One claimed choice. Whoever holds it calls `release`, once the attempt is over."""

    decode: LiveWorker
    peers: tuple[LiveWorker, ...]
    root: BlockHash
    decision: Decision
    max_tokens: int
    """What was wanted, or what the chosen workers have room for."""

    uncached_tokens: int
    decode_claim: ExitStack
    prefill_claim: ExitStack

    def prefill_ended(self) -> None:
        """The first token arrived: the prefill worker is done with this request."""
        self.prefill_claim.close()

    def release(self) -> None:
        self.prefill_claim.close()
        self.decode_claim.close()


@dataclass(frozen=True, slots=True)
class _Hashed:
    """One request under one layout."""

    root: BlockHash
    hashes: Sequence[BlockHash]


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
        """Choose and claim, waiting up to `wait_s` for a decode worker to appear. None when none did.

        Raises PromptTooLong as `try_place` does."""
        deadline = self._clock() + wait_s
        while True:
            placement = self.try_place(wanted)
            if placement is not None:
                return placement
            if self._clock() >= deadline:
                return None
            try:
                async with asyncio.timeout(deadline - self._clock()):
                    await self._table.wait_changed()
            except TimeoutError:
                continue

    def try_place(self, wanted: Wanted, excluded: frozenset[Incarnation] = frozenset()) -> Placement | None:
        """Choose and claim now. No await in here: the load that the choice saw is the load that the claim adds to.

        Raises PromptTooLong for a new request when decode workers are there but none offers enough room."""
        decode = wanted.among(self._table.candidates(Role.DECODE))
        if not decode:
            self._refuse_too_long(wanted)
        able = wanted.of_its_model([worker for worker in decode if worker.identity.incarnation not in excluded])
        hashed = self._hash(wanted, able)
        layouts = self._layouts(wanted, able, hashed)
        decision = choose(wanted.request_id, layouts, self._limits, wanted.use_peers)
        if decision is None:
            return None
        self._decisions.add(decision)
        return self._claim(wanted, decision, hashed[decision.layout.fingerprint])

    def _refuse_too_long(self, wanted: Wanted) -> None:
        longest = max((each.identity.max_model_len for each in self._table.candidates(Role.DECODE)), default=0)
        if 0 < longest < wanted.num_prompt_tokens + wanted.min_room and not wanted.is_resumed:
            asked = wanted.max_tokens if wanted.min_room == wanted.max_tokens else 0
            raise PromptTooLong(longest, wanted.num_prompt_tokens, asked)

    def _hash(self, wanted: Wanted, workers: Iterable[LiveWorker]) -> dict[str, _Hashed]:
        """By layout fingerprint."""
        hashed: dict[str, _Hashed] = {}
        for identity in (worker.identity for worker in workers):
            fingerprint, block_size = identity.layout_fingerprint, identity.layout.block_size
            if fingerprint not in hashed:
                root = root_hash(self._render_fingerprint, fingerprint, wanted.salt)
                hashed[fingerprint] = _Hashed(root, block_hashes(root, wanted.tokens, block_size))
        return hashed

    def _layouts(
        self, wanted: Wanted, decode: Sequence[LiveWorker], hashed: dict[str, _Hashed]
    ) -> tuple[LayoutViews, ...]:
        prefill = wanted.among(self._table.candidates(Role.PREFILL))
        block_sizes = {worker.identity.layout_fingerprint: worker.identity.layout.block_size for worker in decode}
        return tuple(
            LayoutViews(
                fingerprint=fingerprint,
                block_size=block_size,
                num_blocks=len(hashed[fingerprint].hashes),
                decode=self._views(decode, fingerprint, hashed[fingerprint]),
                prefill=self._views(prefill, fingerprint, hashed[fingerprint]),
            )
            for fingerprint, block_size in block_sizes.items()
        )

    def _views(self, workers: Sequence[LiveWorker], fingerprint: str, hashed: _Hashed) -> tuple[WorkerView, ...]:
        now = self._clock()
        return tuple(
            self._view(worker, hashed.hashes, now)
            for worker in workers
            if worker.identity.layout_fingerprint == fingerprint
        )

    def _view(self, worker: LiveWorker, hashes: Sequence[BlockHash], now: float) -> WorkerView:
        load = worker.load
        cached_blocks = self._index.match(worker.identity.incarnation, hashes, now).blocks
        return WorkerView(
            incarnation=worker.identity.incarnation,
            worker_id=worker.identity.worker_id,
            cached_blocks=cached_blocks,
            cached_tokens=cached_blocks * worker.identity.layout.block_size,
            in_flight=worker.in_flight,
            in_flight_tokens=worker.in_flight_tokens,
            waiting=load.waiting,
            queued_prefill_tokens=load.queued_prefill_tokens,
            kv_usage=worker.kv_usage,
        )

    def _claim(self, wanted: Wanted, decision: Decision, hashed: _Hashed) -> Placement:
        decode = self._live(decision.decode_worker.incarnation)
        peers = tuple(self._live(incarnation) for incarnation in decision.prefill_peers)
        room = min(worker.identity.max_model_len for worker in (decode, *peers)) - wanted.num_prompt_tokens
        uncached = len(wanted.tokens) - decision.predicted_tokens
        decode_claim, prefill_claim = ExitStack(), ExitStack()
        decode_claim.enter_context(decode.claim(0 if peers else uncached))
        now = self._clock()
        self._index.predict(decode.identity.incarnation, hashed.hashes, now)
        if peers:
            prefill_claim.enter_context(peers[0].claim(uncached))
            self._index.predict(peers[0].identity.incarnation, hashed.hashes, now)
        return Placement(
            decode=decode,
            peers=peers,
            root=hashed.root,
            decision=decision,
            max_tokens=min(wanted.max_tokens, room),
            uncached_tokens=uncached,
            decode_claim=decode_claim,
            prefill_claim=prefill_claim,
        )

    def _live(self, incarnation: Incarnation) -> LiveWorker:
        worker = self._table.get(incarnation)
        assert worker is not None, "a decision names only workers of the table it was made from"
        return worker
