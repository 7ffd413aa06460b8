"""`StepEngine`: the Engine protocol over a ModelRunner. The event loop's side; `Stepper` is the step thread's.

    service -> open_* -> command -> [step thread] Stepper -> Scheduler -> ModelRunner
                handle <- outbox <- flight <- outcome  <-+
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from kvarn_engine.core.errors import EngineFailure
from kvarn_engine.core.ids import BlockIndex
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.plan import ModelRunner
from kvarn_engine.core.sampling import SampledToken
from kvarn_engine.serving.cache_feed import FeedHandle
from kvarn_engine.serving.engine_settings import EngineSettings
from kvarn_engine.serving.flights import GenerationFlight, PrefillFlight
from kvarn_engine.serving.handles import GenerationHandle, PrefillHandle
from kvarn_engine.serving.loop import StepLoop
from kvarn_engine.serving.protocol import CacheFeed, Generation, LoadReport, Prefill, RequestSpec
from kvarn_engine.serving.request_check import RequestLimits
from kvarn_engine.serving.stepper import Stepper


class StepEngine:
    def __init__(
        self, runner: ModelRunner, settings: EngineSettings, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._runner = runner
        self._settings = settings
        kv_tokens = runner.num_blocks * runner.layout.block_size
        self._limits = RequestLimits(runner.vocab_size, runner.max_model_len, settings.max_sequences, kv_tokens)
        self._stepper = Stepper(runner, settings, clock)
        self._loop = StepLoop(self._stepper)

    @property
    def layout(self) -> KvLayout:
        return self._runner.layout

    @property
    def max_model_len(self) -> int:
        return self._runner.max_model_len

    @property
    def vocab_size(self) -> int:
        return self._runner.vocab_size

    @property
    def is_defective(self) -> bool:
        return self._stepper.is_defective

    def busy_s(self) -> float:
        return self._loop.busy_s()

    async def start(self) -> None:
        self._stepper.outbox.bind(asyncio.get_running_loop())
        self._loop.start()

    async def stop(self) -> None:
        self._loop.submit(self._stepper.shut_down)
        await self._loop.stop()

    @asynccontextmanager
    async def open_prefill(
        self, spec: RequestSpec, num_prompt_tokens: int, have_blocks: int
    ) -> AsyncIterator[Prefill]:
        self._limits.check_prefill(spec, num_prompt_tokens, have_blocks, self.layout.block_size)
        self._check_running()
        handle = PrefillHandle()
        flight = PrefillFlight(spec, num_prompt_tokens, have_blocks, handle)
        self._loop.submit(partial(self._stepper.add, flight))
        try:
            await handle.admitted()
            yield handle
        finally:
            self._loop.submit(partial(self._stepper.close, flight))

    @asynccontextmanager
    async def open_generation(self, spec: RequestSpec) -> AsyncIterator[Generation]:
        self._limits.check_generation(spec)
        self._check_running()
        handle = GenerationHandle(spec, self.layout.block_size, self._runner.write_block)
        flight = GenerationFlight(spec, handle)
        handle.bind(_FlightCommands(flight, handle, self._stepper, self._loop))
        self._loop.submit(partial(self._stepper.add, flight))
        try:
            await handle.admitted()
            yield handle
        finally:
            handle.close()
            self._loop.submit(partial(self._stepper.close, flight))

    def read_block(self, index: BlockIndex) -> memoryview:
        return self._runner.read_block(index)

    @asynccontextmanager
    async def watch_cache(self) -> AsyncIterator[CacheFeed]:
        self._check_running()
        feed = FeedHandle(self._settings.feed_bound)
        self._loop.submit(partial(self._stepper.feeds.add, feed))
        try:
            await feed.ready
            yield feed
        finally:
            self._loop.submit(partial(self._stepper.feeds.remove, feed))

    def load(self) -> LoadReport:
        return self._stepper.load_report

    def check_integrity(self) -> None:
        self._stepper.check_integrity()

    def _check_running(self) -> None:
        if not self._loop.is_running:
            raise EngineFailure("the engine is not running")


class _FlightCommands:
    """GenerationCommands of one flight. Methods run on the event loop; what they submit runs on the step thread."""

    def __init__(
        self, flight: GenerationFlight, handle: GenerationHandle, stepper: Stepper, loop: StepLoop
    ) -> None:
        self._flight = flight
        self._handle = handle
        self._stepper = stepper
        self._loop = loop
        self._is_import_pending = False
        """One command covers all blocks received until it runs."""

    def received(self) -> None:
        if not self._is_import_pending:
            self._is_import_pending = True
            self._loop.submit(self._take_import)

    def start(self, first_tokens: Sequence[tuple[int, SampledToken]]) -> None:
        self._loop.submit(partial(self._start, self._handle.received_blocks, tuple(first_tokens)))

    def stop_choice(self, choice: int) -> None:
        self._loop.submit(partial(self._stop_choice, choice))

    def _take_import(self) -> None:
        self._is_import_pending = False
        if self._stepper.is_open(self._flight):
            self._flight.take_import(self._handle.received_blocks, self._stepper.scheduler)

    def _start(self, received_blocks: int, first_tokens: tuple[tuple[int, SampledToken], ...]) -> None:
        if self._stepper.is_open(self._flight):
            self._flight.start(received_blocks, first_tokens, self._stepper.scheduler, self._stepper.outbox)
            self._stepper.index(self._flight)

    def _stop_choice(self, choice: int) -> None:
        if self._stepper.is_open(self._flight):
            self._flight.stop_choice(choice, self._stepper.scheduler, self._stepper.outbox)
