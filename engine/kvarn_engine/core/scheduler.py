"""Iteration-level batching: which tokens of which sequences the next step computes, and what its result means.

    admit    queue -> blocks for every token that a sequence has; in its turn, and only when predicted growth fits
    schedule running sequences -> one StepPlan under the token budget, those that decode first, then prefill chunks
    apply    drawn tokens -> outputs, forks, finished sequences, published blocks

Called by the step thread, one call at a time. Knows neither time nor who asked.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass

from kvarn_engine.core.admission import GrowthPredictor, WaitingQueue
from kvarn_engine.core.ids import TokenId
from kvarn_engine.core.kv_manager import KvManager
from kvarn_engine.core.lifecycle import SequenceStatus
from kvarn_engine.core.plan import BlockCopy, Draw, PlanEntry, StepPlan
from kvarn_engine.core.sampling import FinishReason, SampledToken
from kvarn_engine.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    max_batch_tokens: int
    max_sequences: int
    """Choices admitted at a time, those that import included."""

    max_model_len: int
    eos_token_ids: frozenset[TokenId]
    aging_steps: int = 64

    def __post_init__(self) -> None:
        if not 0 < self.max_sequences <= self.max_batch_tokens:
            raise ValueError("max_sequences must be positive and at most max_batch_tokens")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did for one sequence. Without tokens it was a prefill chunk that is not the last, or its first token
    was known already."""

    sequence: Sequence
    tokens: tuple[tuple[int, SampledToken], ...] = ()
    reason: FinishReason | None = None
    twin_of: Sequence | None = None
    """Set when the sequence has just forked off that one."""


class Scheduler:
    def __init__(self, kv: KvManager, limits: SchedulerLimits) -> None:
        self.kv = kv
        self.waiting = WaitingQueue(limits.aging_steps)
        self.growth = GrowthPredictor()
        self.running: list[Sequence] = []
        self.importing: list[Sequence] = []
        self.step = 0
        self.preemptions = 0
        self._limits = limits
        self._arrivals = 0
        self._scheduled: list[tuple[Sequence, PlanEntry]] = []
        """What the plan in flight computes; empty between steps."""

    # ---- in and out ----

    def add(self, sequence: Sequence) -> None:
        self._arrivals += 1
        sequence.arrival = self._arrivals
        self.waiting.push(sequence, self.step)

    def admit(self) -> list[Sequence]:
        """Admit waiting sequences, each in its turn, as long as the next one fits."""
        admitted = []
        while (head := self.waiting.head(self.step)) is not None and self._fits(head):
            self.waiting.remove(head)
            self.kv.admit(head)
            head.move(SequenceStatus.IMPORTING if head.imports else SequenceStatus.RUNNING)
            (self.importing if head.imports else self.running).append(head)
            admitted.append(head)
        return admitted

    def begin(
        self, sequence: Sequence, received_blocks: int, first_tokens: Items[tuple[int, SampledToken]] = ()
    ) -> list[Outcome]:
        """An importing sequence joins the batch. With first tokens and all of its blocks it decodes at once; otherwise
        the rest is computed here, and first tokens that came take the place of the draws."""
        kv = self.kv
        is_whole = bool(first_tokens) and received_blocks == len(sequence.block_table)
        if is_whole:
            computed = sequence.num_tokens
        else:
            computed = min(received_blocks, kv.last_block(sequence)) * kv.block_size
            sequence.sent_first = dict(first_tokens)
        kv.end_import(sequence, received_blocks, computed)
        sequence.imports = False
        sequence.move(SequenceStatus.RUNNING)
        self.importing.remove(sequence)
        self.running.append(sequence)
        return self._take(sequence, [token for _, token in first_tokens]) if is_whole else []

    def remove(self, sequence: Sequence) -> None:
        """End a sequence at any point of its life and free its blocks. Called between steps."""
        assert not self._scheduled
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence in self.importing:
            self.importing.remove(sequence)
        if sequence in self.running:
            self.running.remove(sequence)
        if sequence.status is not SequenceStatus.FINISHED:
            sequence.move(SequenceStatus.FINISHED)
        self.kv.free(sequence)

    # ---- one step ----

    def schedule(self) -> StepPlan | None:
        """The next step, or None when there is nothing to compute."""
        assert not self._scheduled
        self.step += 1
        copies: list[BlockCopy] = []
        budget = self._limits.max_batch_tokens
        order = sorted(self.running, key=lambda sequence: sequence.sort_key)
        for sequence in order:
            if sequence.num_uncomputed == 1 and budget > 0 and self._make_room(sequence, copies):
                self._plan(sequence, 1)
                budget -= 1
        for sequence in order:
            chunk = min(budget, sequence.num_uncomputed)
            if sequence.num_uncomputed > 1 and chunk > 0 and sequence.status is SequenceStatus.RUNNING:
                self._plan(sequence, chunk)
                budget -= chunk
        if not self._scheduled:
            return None
        return StepPlan(entries=tuple(entry for _, entry in self._scheduled), copies=tuple(copies))

    def apply(self, results: Items[Items[SampledToken]]) -> list[Outcome]:
        """`results` as `ModelRunner.execute` returns them for the plan in flight."""
        scheduled, self._scheduled = self._scheduled, []
        assert len(results) == len(scheduled)
        outcomes: list[Outcome] = []
        for (sequence, entry), drawn in zip(scheduled, results, strict=True):
            assert len(drawn) == len(entry.draws)
            sequence.num_computed += len(entry.tokens)
            self.kv.publish(sequence)
            outcomes.extend(self._take(sequence, drawn) if drawn else [Outcome(sequence)])
        return outcomes

    def abandon(self) -> None:
        """Forget the plan in flight, whose execution failed."""
        self._scheduled = []

    @property
    def queued_prefill_tokens(self) -> int:
        """Tokens to compute before every sequence decodes; cached prefixes of waiting ones are not looked up."""
        ahead = sum(sequence.num_tokens for sequence in self.waiting)
        return ahead + sum(max(sequence.num_uncomputed - 1, 0) for sequence in self.running)

    # ---- inside ----

    def _fits(self, sequence: Sequence) -> bool:
        active = [*self.running, *self.importing]
        if sum(len(other.choices) for other in (*active, sequence)) > self._limits.max_sequences:
            return False
        demand = self.kv.demand(sequence)
        if active:
            demand += sum(self._predicted_blocks(other) for other in (*active, sequence))
        return demand <= self.kv.pool.num_available

    def _predicted_blocks(self, sequence: Sequence) -> int:
        tokens = self.growth.remaining_tokens(sequence)
        held = max(self.kv.blocks_for(sequence.num_tokens), len(sequence.block_table))
        return (self.kv.blocks_for(sequence.num_tokens + tokens) - held) * len(sequence.choices)

    def _make_room(self, sequence: Sequence, copies: list[BlockCopy]) -> bool:
        """Let a sequence grow, at the cost of newer ones that this step does not compute yet, or of itself."""
        while sequence.status is SequenceStatus.RUNNING:
            if self.kv.grow(sequence, copies):
                return True
            planned = {other for other, _ in self._scheduled}
            victims = [other for other in self.running if other not in planned and not other.exports]
            if not victims:
                return False
            self._preempt(max(victims, key=lambda other: other.sort_key))
        return False

    def _preempt(self, sequence: Sequence) -> None:
        self.kv.free(sequence)
        self.running.remove(sequence)
        sequence.move(SequenceStatus.PREEMPTED)
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.push(sequence, self.step)

    def _plan(self, sequence: Sequence, count: int) -> None:
        start, end = sequence.num_computed, sequence.num_computed + count
        draws: tuple[Draw, ...] = ()
        if end == sequence.num_tokens:
            draws = tuple(
                Draw(choice, sequence.params, end, prompt_tokens=sequence.prompt, output_tokens=sequence.output)
                for choice in sequence.choices
            )
        entry = PlanEntry(sequence.tokens(start, end), start, tuple(sequence.block_table), draws)
        self._scheduled.append((sequence, entry))

    def _take(self, sequence: Sequence, drawn: Items[SampledToken]) -> list[Outcome]:
        """Give each choice of a sequence its drawn token."""
        choices = sequence.choices
        assert len(drawn) == len(choices)
        if sequence.exports:
            self.running.remove(sequence)
            sequence.move(SequenceStatus.FINISHED)
            return [Outcome(sequence, tuple(zip(choices, drawn, strict=True)))]
        sequence.siblings = ()
        sent, sequence.sent_first = sequence.sent_first, {}
        twins = [self.kv.fork(sequence, choice) for choice in choices[1:]]
        self.running.extend(twins)
        outcomes = []
        for member, token in zip((sequence, *twins), drawn, strict=True):
            known = sent.get(member.choice)
            member.output.append((known or token).token_id)
            reason = self.finish_reason(member)
            if reason is not None:
                self.growth.learn(member)
                self.remove(member)
            twin_of = None if member is sequence else sequence
            news = ((member.choice, token),) if known is None else ()
            outcomes.append(Outcome(member, news, reason, twin_of))
        return outcomes

    def finish_reason(self, sequence: Sequence) -> FinishReason | None:
        """Why a sequence with this output goes no further."""
        output, params = sequence.output, sequence.params
        if output and output[-1] in params.stop_token_ids:
            return FinishReason.STOP
        if output and not params.ignore_eos and output[-1] in self._limits.eos_token_ids:
            return FinishReason.STOP
        if len(output) >= params.max_tokens or sequence.num_tokens >= self._limits.max_model_len:
            return FinishReason.LENGTH
        return None
