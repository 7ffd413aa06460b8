"""One generation request from body to last byte. Used by `routes` for chat and for completions.

Reads in order: a slot, the body, the job, then the answer, streamed or whole. Errors leave as exceptions; `edge`
answers them. From the body's end on, a disconnect cancels all of it.
"""

from kvarn_engine.core.ids import RequestId
from starlette.types import Receive, Scope, Send

from kvarn_router.api.choices import ChoiceDelta, TokenLogprob
from kvarn_router.api.edge import request_id_of, tenant_of
from kvarn_router.api.exchange import read_fields, send_json, until_disconnect
from kvarn_router.api.fields import Fields
from kvarn_router.api.generation import Sink, Usage, generate, plan_requests
from kvarn_router.api.requests import Job
from kvarn_router.api.services import Services
from kvarn_router.api.shapes import AnswerShape, FinishedChoice, Head, Payload
from kvarn_router.api.sse import SseWriter
from kvarn_router.context import GenerationRequest


class GenerationEndpoint:
    def __init__(self, services: Services, shape: AnswerShape) -> None:
        self._services = services
        self._shape = shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._services.inflight.slot():
            fields = await read_fields(scope, receive, self._services.body_limits)
            work = self._answer(fields, request_id_of(scope), tenant_of(scope), send)
            await until_disconnect(receive, work)

    async def _answer(self, fields: Fields, request_id: RequestId, tenant: str, send: Send) -> None:
        job = await self._shape.parse(fields)
        salt = self._services.cache_salt(tenant, job.common.cache_salt)
        requests = plan_requests(job, request_id, salt, self._services.pipeline.card().max_model_len)
        created = int(self._services.sources.now_s())
        head = Head(request_id, created, job.model, job.common.sampling.logprobs is not None)
        if job.common.stream:
            await self._stream(job, requests, head, send)
        else:
            await self._whole(job, requests, head, send)

    async def _stream(self, job: Job, requests: tuple[GenerationRequest, ...], head: Head, send: Send) -> None:
        settings = self._services.settings
        writer = SseWriter(send, settings.sse_ping_s, settings.send_timeout_s)
        chunks = _Chunks(self._shape, job, head, writer)
        sink = Sink(chunks.emit, writer.allow_pings)
        async with writer.pinging():
            usage = await generate(self._services.pipeline, self._services.tokenizer, job, requests, sink)
        if job.common.include_usage:
            await writer.event(self._shape.usage_chunk(head, usage))
        await writer.done()

    async def _whole(self, job: Job, requests: tuple[GenerationRequest, ...], head: Head, send: Send) -> None:
        collected = _Collected(job)
        sink = Sink(collected.emit, lambda: None)
        usage: Usage = await generate(self._services.pipeline, self._services.tokenizer, job, requests, sink)
        await send_json(send, self._shape.whole(head, collected.choices(), usage))


class _Chunks:
    """Writes what choices gain as SSE chunks, each choice's opening chunk first."""

    def __init__(self, shape: AnswerShape, job: Job, head: Head, writer: SseWriter) -> None:
        self._shape = shape
        self._job = job
        self._head = head
        self._writer = writer
        self._opened: set[int] = set()

    async def emit(self, delta: ChoiceDelta) -> None:
        payloads: list[Payload] = []
        if delta.index not in self._opened:
            self._opened.add(delta.index)
            echo = self._job.prompts[delta.index // self._job.common.num_choices].echo
            opening = self._shape.opening(self._head, delta.index, echo)
            payloads += [] if opening is None else [opening]
        if not delta.is_empty:
            payloads.append(self._shape.chunk(self._head, delta))
        if self._job.common.include_usage:
            payloads = [{**payload, "usage": None} for payload in payloads]
        if payloads:
            await self._writer.event(*payloads)


class _Collected:
    """Gathers what choices gain for an answer in one piece."""

    def __init__(self, job: Job) -> None:
        per_prompt = job.common.num_choices
        self._texts = [[prompt.echo] for prompt in job.prompts for _ in range(per_prompt)]
        self._logprobs: list[list[TokenLogprob]] = [[] for _ in self._texts]
        self._finishes = ["" for _ in self._texts]

    async def emit(self, delta: ChoiceDelta) -> None:
        self._texts[delta.index].append(delta.text)
        self._logprobs[delta.index].extend(delta.logprobs)
        self._finishes[delta.index] = delta.finish or self._finishes[delta.index]

    def choices(self) -> list[FinishedChoice]:
        return [
            FinishedChoice(index, "".join(texts), tuple(self._logprobs[index]), self._finishes[index])
            for index, texts in enumerate(self._texts)
        ]
