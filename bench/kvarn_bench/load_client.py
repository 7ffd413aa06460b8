"""One streamed completion, timed. Every failure becomes an outcome with its kind: the generator never stops for one."""

import asyncio
import time
from dataclasses import dataclass, field, replace

import httpx

from kvarn_bench.slo import RequestOutcome
from kvarn_bench.sse import Chunk, StreamError, read_line


@dataclass(frozen=True, slots=True)
class LoadTarget:
    url: str
    model: str
    max_tokens: int
    api_key: str = ""


@dataclass(slots=True)
class _Progress:
    """What has come in so far; kept when the stream fails half way."""

    chunk_times_s: list[float] = field(default_factory=list)
    last: Chunk = field(default_factory=Chunk)
    done: bool = False


class LoadClient:
    def __init__(self, http: httpx.AsyncClient, target: LoadTarget, started: float) -> None:
        self._http = http
        self._target = target
        self._started = started

    async def request_at(self, arrival_s: float, prompt: str) -> RequestOutcome:
        await asyncio.sleep(max(0.0, arrival_s - self._now()))
        outcome = RequestOutcome(arrival_s=arrival_s, sent_s=self._now(), ended_s=arrival_s)
        progress = _Progress()
        try:
            error = await self._stream(prompt, progress)
        except StreamError as failure:
            error = str(failure)
        except httpx.TimeoutException:
            error = "timeout"
        except httpx.TransportError:
            error = "connection"
        usage = progress.last.usage
        return replace(
            outcome,
            ended_s=self._now(),
            chunk_times_s=tuple(progress.chunk_times_s),
            prompt_tokens=usage.prompt_tokens if usage else 0,
            cached_tokens=usage.cached_tokens if usage else 0,
            output_tokens=usage.output_tokens if usage else len(progress.chunk_times_s),
            error=error,
        )

    async def _stream(self, prompt: str, progress: _Progress) -> str:
        body = {
            "model": self._target.model,
            "prompt": prompt,
            "max_tokens": self._target.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        async with self._http.stream("POST", f"{self._target.url}/v1/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                return f"HTTP {response.status_code}"
            async for line in response.aiter_lines():
                self._take(read_line(line), progress)
        return "" if progress.done and progress.chunk_times_s else "incomplete stream"

    def _take(self, chunk: Chunk | None, progress: _Progress) -> None:
        if chunk is None:
            return
        if chunk.text:
            progress.chunk_times_s.append(self._now())
        if chunk.usage is not None:
            progress.last = chunk
        progress.done = progress.done or chunk.done

    def _now(self) -> float:
        return time.perf_counter() - self._started


def open_http(target: LoadTarget, timeout_s: float) -> httpx.AsyncClient:
    """No limit on connections: a queue in the client would close the open loop."""
    headers = {"authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx.AsyncClient(headers=headers, limits=limits, timeout=timeout_s, trust_env=False)
