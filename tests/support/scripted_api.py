"""The API half on a real uvicorn over loopback, in front of a pipeline that plays a script instead of a model."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import uvicorn
from kvarn_engine.core.sampling import FinishReason, SampledToken, TopLogprob
from kvarn_router.api.routes import build_api
from kvarn_router.api.services import Sources
from kvarn_router.api.settings import ApiSettings
from kvarn_router.context import (
    DoneEvent,
    FinishedEvent,
    GenerationRequest,
    ModelCard,
    PlacedEvent,
    StreamEvent,
    TokensEvent,
)
from kvarn_router.tokenization import Tokenizer
from prometheus_client import CollectorRegistry
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

MODEL = "tiny"
MAX_MODEL_LEN = 400
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = ("the quick brown fox jumps over the lazy dog", "hello world, stop here", "one two three four five")

Step = StreamEvent | Exception | asyncio.Event
"""What the script does next: yield it, raise it, or wait for it."""

Script = Callable[[GenerationRequest], Sequence[Step]]


def write_tiny_tokenizer(folder: Path, template: str = TEMPLATE) -> Path:
    """Byte-level BPE: every character is possible, and those outside the corpus are several tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True) for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    backend.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@dataclass
class ScriptedPipeline:
    script: Script
    max_model_len: int = MAX_MODEL_LEN
    ready: bool = True
    held: asyncio.Event | None = None
    """Until it is set, no worker takes a request."""

    requests: list[GenerationRequest] = field(default_factory=list)
    open_streams: int = 0
    closed_streams: int = 0
    stopped: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, request: GenerationRequest) -> AsyncIterator["_ScriptedStream"]:
        self.requests.append(request)
        self.open_streams += 1
        try:
            yield _ScriptedStream(self.script(request), self.stopped, self.held)
        finally:
            self.open_streams -= 1
            self.closed_streams += 1

    def card(self) -> ModelCard:
        return ModelCard((MODEL,), self.max_model_len)

    def is_ready(self) -> bool:
        return self.ready


class _ScriptedStream:
    def __init__(self, steps: Sequence[Step], stopped: list[int], held: asyncio.Event | None) -> None:
        self._steps = steps
        self._held = held
        self._stopped = stopped
        self._own_stops: set[int] = set()

    def stop_choice(self, choice: int) -> None:
        self._stopped.append(choice)
        self._own_stops.add(choice)

    async def events(self) -> AsyncIterator[StreamEvent]:
        if self._held is not None:
            await self._held.wait()
        if not self._steps or not isinstance(self._steps[0], Exception):
            yield PlacedEvent("decode-0")
        for step in self._steps:
            await asyncio.sleep(0)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, TokensEvent | FinishedEvent) and step.choice in self._own_stops:
                if isinstance(step, FinishedEvent):
                    yield FinishedEvent(step.choice, FinishReason.ABORTED)
            else:
                yield step


def sampled(tokenizer: Tokenizer, token: int, request: GenerationRequest) -> SampledToken:
    if request.sampling.logprobs is None:
        return SampledToken(token)
    top = [TopLogprob(token, -0.25), *(TopLogprob(other, -1.5 - other) for other in range(10, 40))]
    return SampledToken(token, -0.25, tuple(top[: request.sampling.logprobs]))


def says(tokenizer: Tokenizer, text: str, reason: FinishReason = FinishReason.STOP, cached: int = 0) -> Script:
    """Every choice says `text`, a token at a time, choices in turn."""

    def script(request: GenerationRequest) -> list[Step]:
        tokens = tokenizer._encode(text, add_special_tokens=False)
        steps: list[Step] = [
            TokensEvent(choice, (sampled(tokenizer, token, request),))
            for token in tokens
            for choice in range(request.num_choices)
        ]
        ends = [FinishedEvent(choice, reason) for choice in range(request.num_choices)]
        return [*steps, *ends, DoneEvent(cached_tokens=cached)]

    return script


@asynccontextmanager
async def serving(
    pipeline: ScriptedPipeline, tokenizer: Tokenizer, settings: ApiSettings | None = None
) -> AsyncIterator[str]:
    """Base URL of the API; the server is down when the block ends."""
    sources = Sources(now_s=lambda: 1_700_000_000.0, draw_seed=lambda: 4242, make_request_id=lambda: "req-made")
    api = build_api(pipeline, tokenizer, settings or ApiSettings(), CollectorRegistry(), sources)
    config = uvicorn.Config(
        api, host="127.0.0.1", port=0, http="httptools", log_config=None, access_log=False, lifespan="off"
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None
    task = asyncio.create_task(server.serve(), name="uvicorn")
    try:
        await until(lambda: server.started or task.done())
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


async def until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    async with asyncio.timeout(deadline_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.002)


def client(url: str, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=20, trust_env=False)


def sse_payloads(text: str) -> list[str]:
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
