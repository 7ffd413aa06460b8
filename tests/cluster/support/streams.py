"""Long streamed requests without a break, each compared with the answer that it must give whatever happens."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from tests.support.client import Answer, Body, ask, completion_body, streaming
from tests.support.process import wait_until

TIMEOUT = httpx.Timeout(120.0, connect=10.0)
ONE_REQUEST_EACH = httpx.Limits(max_keepalive_connections=0)
"""Connections: so that the Service spreads requests over the routers, as it spreads clients."""

AFTER_FAILURE_S = 1.0
"""What is gone is not to be asked in a hot loop."""

UNDER_WAY = 5
"""Events after which a stream is not at its beginning any more."""


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt with its answer, asked for while nothing changed."""

    body: Body
    num_tokens: int
    text: str = ""

    def difference(self, answer: Answer) -> str:
        if answer.error:
            return f"an error event: {answer.error}"
        if answer.finish_reason != "length":
            return f"finish_reason is {answer.finish_reason!r}"
        if answer.completion_tokens != self.num_tokens:
            return f"{answer.completion_tokens} tokens instead of {self.num_tokens}"
        if answer.text != self.text:
            return f"another text from character {_first_change(self.text, answer.text)}"
        return ""


@dataclass(slots=True)
class Stream:
    """Written by the thread that sends, read by any."""

    number: int
    last_event: float
    events: int = 0
    longest_pause_s: float = 0.0
    tokens: int = 0
    is_over: bool = False
    problem: str = ""

    @property
    def is_under_way(self) -> bool:
        return self.events >= UNDER_WAY and not self.is_over

    def heard(self, now: float) -> None:
        """The first one also waits for its prefill, which is no pause."""
        if self.events:
            self.longest_pause_s = max(self.longest_pause_s, now - self.last_event)
        self.events += 1
        self.last_event = now


class LongStreams:
    """So many clients, each with one stream at any time. `send` runs in a thread of its own until `stop`."""

    def __init__(self, url: str, questions: Sequence[Question], clients: int) -> None:
        self.all: list[Stream] = []
        self.clients = clients
        self._url = url
        self.questions = questions
        self._over = threading.Event()

    @property
    def under_way(self) -> Sequence[Stream]:
        return [stream for stream in list(self.all) if stream.is_under_way]

    def stop(self) -> None:
        """Each client ends its stream first."""
        self._over.set()

    def send(self) -> None:
        asyncio.run(self._send())

    def wait_under_way(self) -> Sequence[Stream]:
        wait_until(lambda: len(self.under_way) == self.clients, "every client is amid a stream", 120)
        return self.under_way

    def touched(self, first: Sequence[Stream]) -> Sequence[Stream]:
        """Those, and all that began later."""
        return [*first, *(stream for stream in list(self.all) if stream.number > max(each.number for each in first))]

    async def _send(self) -> None:
        async with (
            httpx.AsyncClient(base_url=self._url, timeout=TIMEOUT, limits=ONE_REQUEST_EACH) as client,
            asyncio.TaskGroup() as group,
        ):
            for number in range(self.clients):
                group.create_task(self._one_client(client, number), name=f"client {number}")

    async def _one_client(self, client: httpx.AsyncClient, number: int) -> None:
        while not self._over.is_set():
            stream = Stream(len(self.all), time.monotonic())
            self.all.append(stream)
            await self._one_stream(client, stream)
            if stream.problem:
                await asyncio.sleep(AFTER_FAILURE_S)

    async def _one_stream(self, client: httpx.AsyncClient, stream: Stream) -> None:
        question = self.questions[stream.number % len(self.questions)]
        answer = Answer()
        try:
            async with streaming(client, _salted(question.body, f"stream {stream.number}")) as growing:
                async for grown in growing:
                    answer = grown
                    stream.heard(time.monotonic())
            stream.problem = question.difference(answer)
        except (AssertionError, httpx.HTTPError) as error:
            stream.problem = f"{type(error).__name__}: {error}"
        stream.tokens = answer.completion_tokens
        stream.is_over = True


@contextmanager
def long_streams(url: str, questions: Sequence[Question], clients: int) -> Iterator[LongStreams]:
    streams = LongStreams(url, questions, clients)
    with ThreadPoolExecutor(1, "streams") as executor:
        sent: Future[None] = executor.submit(streams.send)
        try:
            yield streams
        finally:
            streams.stop()
            sent.result()


def asked_at_rest(url: str, model: str, lengths: Sequence[tuple[int, int]]) -> Sequence[Question]:
    """For each pair of prompt and answer length one question; the answers come whole, in one body."""

    async def ask_all() -> Sequence[Question]:
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as client:
            answers = await asyncio.gather(*(ask(client, question.body) for question in questions))
        assert [answer.completion_tokens for answer in answers] == [question.num_tokens for question in questions]
        return [
            Question(question.body, question.num_tokens, answer.text)
            for question, answer in zip(questions, answers, strict=True)
        ]

    questions = [_question(model, *length) for length in lengths]
    return asyncio.run(ask_all())


def _question(model: str, prompt_tokens: int, num_tokens: int) -> Question:
    dice = random.Random(num_tokens)
    prompt = [dice.randrange(1000, 40000) for _ in range(prompt_tokens)]
    return Question(completion_body(model, prompt, num_tokens, ignore_eos=True), num_tokens)


def _salted(body: Body, salt: str) -> Body:
    """No stream finds another's blocks, so that each needs a hand-off of its own."""
    return {**body, "cache_salt": salt}


def _first_change(expected: str, found: str) -> int:
    pairs = zip(expected, found, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(expected), len(found)))


def problems(streams: Sequence[Stream]) -> Sequence[str]:
    return [f"stream {stream.number}: {stream.problem}" for stream in streams if stream.problem]


def is_broken_connection(problem: str) -> bool:
    """And so one that the client knows of."""
    return any(kind in problem for kind in ("RemoteProtocolError", "ReadError", "ConnectError"))
