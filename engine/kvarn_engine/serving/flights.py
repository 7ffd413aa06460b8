"""Requests as the step thread sees them: their sequences, and what their handles hear of each step."""

from collections.abc import Iterable
from functools import partial

from kvarn_engine.core.errors import EngineError
from kvarn_engine.core.hashing import partial_hash
from kvarn_engine.core.ids import BlockHash, BlockIndex
from kvarn_engine.core.lifecycle import SequenceStatus
from kvarn_engine.core.sampling import FinishReason, SampledToken
from kvarn_engine.core.scheduler import Outcome, Scheduler
from kvarn_engine.core.sequence import Sequence
from kvarn_engine.serving.handles import GenerationHandle, PrefillHandle
from kvarn_engine.serving.loop import Outbox
from kvarn_engine.serving.protocol import (
    BlocksReady,
    FinishedEvent,
    FirstTokens,
    PrefillFinished,
    RequestSpec,
    TokensEvent,
)


class PrefillFlight:
    """One sequence that ends at its first draw; its blocks are pinned as they are announced."""

    def __init__(self, spec: RequestSpec, num_prompt_tokens: int, have_blocks: int, handle: PrefillHandle) -> None:
        first, *others = [choice.index for choice in spec.choices]
        self._handle = handle
        self._next_block = have_blocks
        self._exported: list[BlockIndex] = []
        self._compute_s = 0.0
        self.sequence = Sequence(
            spec.request_id, spec.prompt_tokens[:num_prompt_tokens], spec.sampling, spec.root_hash, first,
            siblings=tuple(others), output=list(spec.prompt_tokens[num_prompt_tokens:]), priority=spec.priority,
            exports=True,
        )  # fmt: skip

    @property
    def sequences(self) -> Iterable[Sequence]:
        return (self.sequence,)

    @property
    def pinned(self) -> Iterable[BlockIndex]:
        return self._exported

    def on_admitted(self, sequence: Sequence, scheduler: Scheduler, outbox: Outbox) -> None:
        outbox.post(partial(self._handle.on_admitted, sequence.num_cached))
        self._announce(sequence.num_published, scheduler, outbox)

    def on_outcome(self, outcome: Outcome, step_s: float, scheduler: Scheduler, outbox: Outbox) -> None:
        """First tokens go out ahead of the last chunk's blocks."""
        self._compute_s += step_s
        sequence = self.sequence
        if not outcome.tokens:
            self._announce(sequence.num_computed // scheduler.kv.block_size, scheduler, outbox)
            return
        outbox.post(partial(self._handle.on_event, FirstTokens(outcome.tokens)))
        self._announce(len(sequence.block_table), scheduler, outbox)
        finished = PrefillFinished(len(sequence.block_table), self._compute_s)
        outbox.post(partial(self._handle.on_event, finished))

    def on_failed(self, error: EngineError, outbox: Outbox) -> None:
        outbox.post(partial(self._handle.on_failed, error))

    def close(self, scheduler: Scheduler) -> None:
        scheduler.kv.pool.end_export(self._exported)
        self._exported = []
        scheduler.remove(self.sequence)

    def _announce(self, end: int, scheduler: Scheduler, outbox: Outbox) -> None:
        """Pin and announce blocks up to `end` that have not been announced."""
        first = self._next_block
        if end <= first:
            return
        self._next_block = end
        indexes = tuple(self.sequence.block_table[first:end])
        scheduler.kv.pool.begin_export(indexes)
        self._exported.extend(indexes)
        event = BlocksReady(first, indexes, self._hashes(first, end, scheduler.kv.block_size))
        outbox.post(partial(self._handle.on_event, event))

    def _hashes(self, first: int, end: int, block_size: int) -> tuple[BlockHash, ...]:
        sequence = self.sequence
        full = min(end, sequence.num_tokens // block_size)
        chain = sequence.chain(full, block_size)
        hashes = tuple(chain[first:full])
        if full < end:
            parent = chain[-1] if chain else sequence.root_hash
            hashes += (partial_hash(parent, sequence.tokens(full * block_size, sequence.num_tokens)),)
        return hashes


class GenerationFlight:
    """The sequences of one request's choices. `primary` imports; the others fork off it, or, resumed with output of
    their own, are queued when it starts."""

    def __init__(self, spec: RequestSpec, handle: GenerationHandle) -> None:
        fresh = [choice for choice in spec.choices if not choice.output_tokens]
        resumed = [choice for choice in spec.choices if choice.output_tokens]
        built = [
            Sequence(
                spec.request_id, spec.prompt_tokens, spec.sampling, spec.root_hash, choice.index,
                output=list(choice.output_tokens), priority=spec.priority,
            )
            for choice in (*fresh[:1], *resumed)
        ]  # fmt: skip
        built[0].siblings = tuple(choice.index for choice in fresh[1:])
        built[0].imports = True
        self._handle = handle
        self._preemptions = 0
        self.primary = built[0]
        self.sequences = built

    @property
    def pinned(self) -> Iterable[BlockIndex]:
        return ()

    def on_admitted(self, sequence: Sequence, scheduler: Scheduler, outbox: Outbox) -> None:
        if sequence.status is SequenceStatus.IMPORTING:
            table = tuple(sequence.block_table)
            outbox.post(partial(self._handle.on_admitted, sequence.num_published, table))

    def on_outcome(self, outcome: Outcome, step_s: float, scheduler: Scheduler, outbox: Outbox) -> None:
        self._adopt(outcome)
        for choice, token in outcome.tokens:
            outbox.post(partial(self._handle.on_event, TokensEvent(choice, (token,))))
        if outcome.reason is not None:
            self._finish(outcome.sequence.choice, outcome.reason, outbox)

    def on_failed(self, error: EngineError, outbox: Outbox) -> None:
        outbox.post(partial(self._handle.on_failed, error))

    def close(self, scheduler: Scheduler) -> None:
        for sequence in self.sequences:
            scheduler.remove(sequence)

    def take_import(self, received_blocks: int, scheduler: Scheduler) -> None:
        if self.primary.status is SequenceStatus.IMPORTING:
            scheduler.kv.take_import(self.primary, received_blocks)

    def start(
        self,
        received_blocks: int,
        first_tokens: tuple[tuple[int, SampledToken], ...],
        scheduler: Scheduler,
        outbox: Outbox,
    ) -> None:
        for sequence in self.sequences:
            if sequence.status is SequenceStatus.FINISHED:
                continue
            reason = scheduler.finish_reason(sequence)
            if reason is not None:
                scheduler.remove(sequence)
                self._finish(sequence.choice, reason, outbox)
            elif sequence is not self.primary:
                scheduler.add(sequence)
        primary = self.primary
        if primary.status is not SequenceStatus.IMPORTING:
            return
        by_choice = dict(first_tokens)
        wanted = [(choice, by_choice[choice]) for choice in primary.choices] if first_tokens else []
        for outcome in scheduler.begin(primary, received_blocks, wanted):
            self._adopt(outcome)
            if outcome.reason is not None:
                self._finish(outcome.sequence.choice, outcome.reason, outbox)

    def stop_choice(self, choice: int, scheduler: Scheduler, outbox: Outbox) -> None:
        for sequence in self.sequences:
            if sequence.status is SequenceStatus.FINISHED or choice not in sequence.choices:
                continue
            rest = tuple(other for other in sequence.choices if other != choice)
            if rest:
                sequence.choice, sequence.siblings = rest[0], rest[1:]
            else:
                scheduler.remove(sequence)
            self._finish(choice, FinishReason.ABORTED, outbox)
            return

    def _adopt(self, outcome: Outcome) -> None:
        if outcome.twin_of is not None:
            self.sequences.append(outcome.sequence)

    def _finish(self, choice: int, reason: FinishReason, outbox: Outbox) -> None:
        preemptions = sum(sequence.preemptions for sequence in self.sequences)
        outbox.post(partial(self._handle.on_preempted, preemptions))
        outbox.post(partial(self._handle.on_event, FinishedEvent(choice, reason)))


Flight = PrefillFlight | GenerationFlight
