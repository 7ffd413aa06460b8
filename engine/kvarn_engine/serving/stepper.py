"""The step thread's side of an engine: owner of pool, scheduler and flights. Every method runs on that thread, except
`check_integrity` and reading `load_report`."""

import logging
import threading
from collections.abc import Callable, Iterable

from kvarn_engine.core.block_pool import BlockPool
from kvarn_engine.core.errors import Draining, EngineError, EngineFailure, Overloaded
from kvarn_engine.core.kv_manager import KvManager
from kvarn_engine.core.plan import ModelRunner, StepPlan
from kvarn_engine.core.sampling import SampledToken
from kvarn_engine.core.scheduler import Scheduler, SchedulerLimits
from kvarn_engine.core.sequence import Sequence
from kvarn_engine.serving.cache_feed import CacheFeedHub
from kvarn_engine.serving.engine_settings import EngineSettings
from kvarn_engine.serving.flights import Flight
from kvarn_engine.serving.load_meter import LoadMeter
from kvarn_engine.serving.loop import Call, Outbox
from kvarn_engine.serving.protocol import LoadReport

_log = logging.getLogger("kvarn.engine")


class Stepper:
    def __init__(self, runner: ModelRunner, settings: EngineSettings, clock: Callable[[], float]) -> None:
        limits = SchedulerLimits(
            settings.max_batch_tokens, settings.max_sequences, runner.max_model_len, runner.eos_token_ids,
            settings.aging_steps,
        )  # fmt: skip
        self.outbox = Outbox()
        self._runner = runner
        self._max_waiting = settings.max_waiting
        self._clock = clock
        self._pool = BlockPool(runner.num_blocks)
        self.scheduler = Scheduler(KvManager(self._pool, runner.layout.block_size), limits)
        self.feeds = CacheFeedHub(self._pool, self.outbox)
        self._meter = LoadMeter()
        self._flights: set[Flight] = set()
        self._by_sequence: dict[Sequence, Flight] = {}
        self._defect: Exception | None = None
        self._between_steps = threading.Lock()
        """Held while pool and scheduler change; free while a step computes."""

        self.load_report = self._report()

    # ---- StepWork ----

    def run(self, command: Call) -> None:
        with self._between_steps:
            command()
            self._end_turn()

    def turn(self) -> bool:
        if self._defect is not None:
            return False
        with self._between_steps:
            preemptions = self.scheduler.preemptions
            for sequence in self.scheduler.admit():
                self._by_sequence[sequence].on_admitted(sequence, self.scheduler, self.outbox)
            plan = self.scheduler.schedule()
            self._end_turn()
        if plan is None:
            return self.scheduler.preemptions != preemptions
        began = self._clock()
        results = self._execute(plan)
        if results is not None:
            with self._between_steps:
                self._apply(plan, results, self._clock() - began)
                self._end_turn()
        return True

    @property
    def is_defective(self) -> bool:
        return self._defect is not None

    def crash(self, error: Exception) -> None:
        with self._between_steps:
            self._defect = error
            for flight in self._flights:
                flight.on_failed(EngineFailure("the engine has a defect and must be restarted"), self.outbox)
            self.outbox.flush()

    # ---- commands ----

    def add(self, flight: Flight) -> None:
        refusal = self._refusal()
        if refusal is not None:
            flight.on_failed(refusal, self.outbox)
            return
        self._flights.add(flight)
        for sequence in flight.sequences:
            self._by_sequence[sequence] = flight
        self.scheduler.add(next(iter(flight.sequences)))

    def close(self, flight: Flight) -> None:
        """Free everything that a request holds, whatever state it is in."""
        if flight in self._flights and self._defect is None:
            self._flights.remove(flight)
            flight.close(self.scheduler)
            for sequence in flight.sequences:
                self._by_sequence.pop(sequence, None)

    def index(self, flight: Flight) -> None:
        """Sequences of the flight may have forked."""
        for sequence in flight.sequences:
            self._by_sequence[sequence] = flight

    def is_open(self, flight: Flight) -> bool:
        return flight in self._flights

    def shut_down(self) -> None:
        """What is left goes back to its callers, who take it elsewhere: nothing is wrong with it."""
        self._fail_all(Draining("this worker ends"))
        self.feeds.end()

    def check_integrity(self) -> None:
        with self._between_steps:
            held: list[Sequence] = []
            for flight in self._flights:
                held.extend(flight.sequences)
            pinned = [index for flight in self._flights for index in flight.pinned]
            self.scheduler.kv.check_integrity(held, pinned)

    # ---- inside ----

    def _refusal(self) -> EngineError | None:
        if self._defect is not None:
            return EngineFailure("the engine has a defect and must be restarted")
        waiting = len(self.scheduler.waiting)
        if waiting < self._max_waiting:
            return None
        rate = self._meter.prefill_tokens_per_s
        retry_after_s = self.scheduler.queued_prefill_tokens / rate if rate else 1.0
        return Overloaded(f"{waiting} sequences are waiting", min(max(retry_after_s, 1.0), 60.0))

    def _execute(self, plan: StepPlan) -> list[list[SampledToken]] | None:
        """A failed step fails every request in flight, as none of their blocks can be trusted; complete blocks from
        earlier steps stay cached, and the loop goes on."""
        try:
            results = self._runner.execute(plan)
            if [len(drawn) for drawn in results] != [len(entry.draws) for entry in plan.entries]:
                raise RuntimeError("the runner did not answer every draw")
            return results
        except Exception as error:  # noqa: BLE001  a runner may raise anything; requests hear EngineFailure
            _log.error("step failed: %s", type(error).__name__, exc_info=error)
            with self._between_steps:
                self.scheduler.abandon()
                self._fail_all(EngineFailure(f"a step failed: {type(error).__name__}"))
            return None

    def _apply(self, plan: StepPlan, results: list[list[SampledToken]], step_s: float) -> None:
        self._meter.observe(plan, step_s)
        for outcome in self.scheduler.apply(results):
            known = outcome.sequence if outcome.twin_of is None else outcome.twin_of
            flight = self._by_sequence[known]
            flight.on_outcome(outcome, step_s, self.scheduler, self.outbox)
            self._by_sequence[outcome.sequence] = flight

    def _fail_all(self, error: EngineError) -> None:
        for flight in tuple(self._flights):
            self.close(flight)
            flight.on_failed(error, self.outbox)
        self._end_turn()

    def _end_turn(self) -> None:
        self.feeds.publish()
        self.load_report = self._report()
        self.outbox.flush()

    def _report(self) -> LoadReport:
        scheduler, pool = self.scheduler, self._pool
        return LoadReport(
            running=_choices(scheduler.running) + _choices(scheduler.importing),
            waiting=_choices(scheduler.waiting),
            blocks_total=pool.num_blocks,
            blocks_in_use=pool.num_in_use,
            blocks_cached=pool.num_cached,
            queued_prefill_tokens=scheduler.queued_prefill_tokens,
            prefill_tokens_per_s=self._meter.prefill_tokens_per_s,
            decode_step_s=self._meter.decode_step_s,
        )


def _choices(sequences: Iterable[Sequence]) -> int:
    return sum(len(sequence.choices) for sequence in sequences)
