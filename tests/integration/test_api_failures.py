"""Failures, refusals and disconnects: true statuses first, error events later, nothing left over."""

import asyncio
import json
import logging

import httpx
import openai
import pytest
from kvarn_engine.core.sampling import FinishReason, SampledToken, TopLogprob
from kvarn_router.api.settings import ApiSettings
from kvarn_router.context import DoneEvent, FinishedEvent, TokensEvent
from kvarn_router.errors import InternalError, InvalidInput, NoWorker, PromptTooLong, TooManyRequests, WorkerLost
from kvarn_router.tokenization import Tokenizer

from tests.support.scripted_api import (
    MODEL,
    ScriptedPipeline,
    client,
    says,
    serving,
    sse_payloads,
    until,
    write_tiny_tokenizer,
)

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    loaded = Tokenizer.load(write_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))
    yield loaded
    loaded.close()


def plays(*steps):
    return ScriptedPipeline(lambda request: steps)


def token(tokenizer, text):
    return TokensEvent(0, tuple(SampledToken(t) for t in tokenizer._encode(text, add_special_tokens=False)))


FAILURES = [
    (InvalidInput("bad", "seed"), 400, "invalid_request_error", None, None),
    (PromptTooLong(5, 6), 400, "invalid_request_error", "context_length_exceeded", None),
    (TooManyRequests("queue is full"), 429, "rate_limit_error", "rate_limit_exceeded", "1"),
    (NoWorker("none"), 503, "service_unavailable_error", "no_worker", "1"),
    (WorkerLost("lost"), 502, "server_error", "worker_lost", None),
    (InternalError("ours"), 500, "server_error", "internal_error", None),
    (KeyError("prompt text"), 500, "server_error", "internal_error", None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("failure", "status", "kind", "code", "retry_after"), FAILURES)
async def test_failure_before_the_first_token(tokenizer, failure, status, kind, code, retry_after, stream):
    pipeline = plays(failure)
    async with serving(pipeline, tokenizer) as url, client(url) as http:
        answer = await http.post(CHAT, json={**BODY, "stream": stream})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (status, kind, code)
    assert answer.headers.get("retry-after") == retry_after
    assert "prompt text" not in answer.text
    assert pipeline.closed_streams == 1


@pytest.mark.parametrize("failure", [WorkerLost("lost"), RuntimeError("secret")])
async def test_failure_in_a_stream_is_an_error_event(tokenizer, failure):
    async with serving(plays(token(tokenizer, "one"), failure), tokenizer) as url, client(url) as http:
        answer = await http.post(CHAT, json={**BODY, "stream": True})
    payloads = sse_payloads(answer.text)
    assert answer.status_code == 200
    assert json.loads(payloads[-1])["error"]["type"] == "server_error"
    assert "[DONE]" not in answer.text
    assert "secret" not in answer.text


async def test_the_official_client_raises_on_an_error_event(tokenizer):
    pipeline = plays(token(tokenizer, "one"), WorkerLost("worker went away"))
    async with serving(pipeline, tokenizer) as url, httpx.AsyncClient(trust_env=False) as transport:
        sdk = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0, http_client=transport)
        stream = await sdk.chat.completions.create(**BODY, stream=True)
        with pytest.raises(openai.APIError, match="worker went away"):
            async for _ in stream:
                pass


@pytest.mark.parametrize("ending", [[], [DoneEvent(0)], [FinishedEvent(0, FinishReason.ABORTED), DoneEvent(0)]])
async def test_a_stream_that_ends_too_early_is_a_lost_worker(tokenizer, ending):
    async with serving(plays(token(tokenizer, "one"), *ending), tokenizer) as url, client(url) as http:
        assert (await http.post(CHAT, json=BODY)).status_code == 502


async def test_one_failing_prompt_ends_the_others(tokenizer):
    gate = asyncio.Event()
    scripts = {"req-made-0": [gate], "req-made-1": [NoWorker("none")]}
    pipeline = ScriptedPipeline(lambda request: scripts[request.request_id])
    async with serving(pipeline, tokenizer) as url, client(url) as http:
        answer = await http.post("/v1/completions", json={"model": MODEL, "prompt": ["a", "b"]})
        assert answer.status_code == 503
        assert (pipeline.open_streams, pipeline.closed_streams) == (0, 2)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after_first_token", [False, True])
async def test_disconnect_cancels_the_work(tokenizer, stream, after_first_token):
    gate = asyncio.Event()
    pipeline = plays(*([token(tokenizer, "one")] if after_first_token else []), gate)
    async with serving(pipeline, tokenizer) as url:
        body = json.dumps({**BODY, "stream": stream}).encode()
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        if stream and after_first_token:
            await reader.readuntil(b"one")
        await until(lambda: pipeline.open_streams == 1)
        writer.close()
        await until(lambda: pipeline.closed_streams == 1)
        async with client(url) as http:
            metrics = (await http.get("/metrics")).text
        assert f'kvarn_api_requests_total{{path="{CHAT}",status="499"}} 1.0' in metrics


async def test_a_client_that_reads_nothing_is_given_up(tokenizer):
    ids = tokenizer._encode("x", add_special_tokens=False)
    top = tuple(TopLogprob(position, -1.0) for position in range(200))
    pipeline = plays(*[TokensEvent(0, (SampledToken(ids[0], -1.0, top),))] * 4_000)
    body = json.dumps({**BODY, "stream": True, "logprobs": True, "top_logprobs": 20}).encode()
    async with serving(pipeline, tokenizer, ApiSettings(send_timeout_s=0.2)) as url:
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await until(lambda: pipeline.closed_streams == 1, deadline_s=60)
        async with client(url) as http:
            assert 'status="499"' in (await http.get("/metrics")).text
        writer.close()


async def test_a_body_that_never_comes_is_given_up(tokenizer):
    async with serving(plays(), tokenizer, ApiSettings(body_timeout_s=0.05)) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{{".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_ping_only_after_silence(tokenizer):
    gate = asyncio.Event()
    pipeline = plays(gate, *says(tokenizer, "done")(_request()))
    settings = ApiSettings(sse_ping_s=0.02)
    streamed = {"method": "POST", "url": CHAT, "json": {**BODY, "stream": True}}
    async with serving(pipeline, tokenizer, settings) as url, client(url) as http, http.stream(**streamed) as answer:
        lines = answer.aiter_lines()
        assert [await anext(lines) for _ in range(4)] == [": ping", "", ": ping", ""]
        gate.set()
        rest = [line async for line in lines]
    assert rest[-2] == "data: [DONE]"


async def test_a_failure_after_a_ping_is_an_error_event(tokenizer):
    gate = asyncio.Event()
    pipeline, settings = plays(gate, NoWorker("none")), ApiSettings(sse_ping_s=0.02)
    streamed = {"method": "POST", "url": CHAT, "json": {**BODY, "stream": True}}
    async with serving(pipeline, tokenizer, settings) as url, client(url) as http, http.stream(**streamed) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": ping"
        gate.set()
        data = [line for line in [line async for line in lines] if line.startswith("data: ")]
    assert [json.loads(line.removeprefix("data: "))["error"]["code"] for line in data] == ["no_worker"]


async def test_no_ping_in_a_lively_stream(tokenizer):
    async with serving(ScriptedPipeline(says(tokenizer, "hello")), tokenizer) as url, client(url) as http:
        assert ": ping" not in (await http.post(CHAT, json={**BODY, "stream": True})).text


async def test_too_many_in_flight(tokenizer):
    gate = asyncio.Event()
    pipeline = plays(gate, *says(tokenizer, "done")(_request()))
    async with serving(pipeline, tokenizer, ApiSettings(max_inflight=1)) as url, client(url) as http:
        first = asyncio.create_task(http.post(CHAT, json=BODY))
        await until(lambda: pipeline.open_streams == 1)
        refused = await http.post(CHAT, json=BODY)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["message"] == "The router already has 1 requests in progress."
        gate.set()
        assert (await first).status_code == 200
        assert (await http.post(CHAT, json=BODY)).status_code == 200


async def test_without_any_worker_routing_decides(tokenizer):
    """How long a prompt may be is not known yet, so nothing is refused for it here."""
    pipeline = plays(NoWorker("none"))
    pipeline.max_model_len = 0
    async with serving(pipeline, tokenizer) as url, client(url) as http:
        assert (await http.post(CHAT, json=BODY)).status_code == 503
        assert (await http.post("/v1/completions", json={"model": MODEL, "prompt": "a"})).status_code == 503
    chat, text = pipeline.requests
    assert (chat.may_be_cut, chat.sampling.max_tokens) == (True, 2**31 - 1)
    assert (text.may_be_cut, text.sampling.max_tokens) == (True, 16)


async def test_a_prompt_that_routing_finds_too_long_names_its_parameter(tokenizer):
    pipeline = plays(PromptTooLong(5, 19))
    pipeline.max_model_len = 0
    async with serving(pipeline, tokenizer) as url, client(url) as http:
        error = (await http.post(CHAT, json=BODY)).json()["error"]
    assert error["param"] == "messages"
    assert error["message"] == "This model's maximum context length is 5 tokens, but the prompt has 19."


async def test_no_ping_while_a_request_is_held(tokenizer):
    """The status of a refusal stays true however long the hold was."""
    held = asyncio.Event()
    pipeline = ScriptedPipeline(lambda request: [NoWorker("held in vain")], held=held)
    async with serving(pipeline, tokenizer, ApiSettings(sse_ping_s=0.001)) as url, client(url) as http:
        asked = asyncio.create_task(http.post(CHAT, json={**BODY, "stream": True}))
        await until(lambda: pipeline.open_streams == 1)
        for _ in range(50):
            await asyncio.sleep(0.001)  # many times the silence that a ping would break
        held.set()
        assert (await asked).status_code == 503


async def test_of_several_prompts_all_must_be_taken_before_a_ping(tokenizer):
    """The first prompt is at work and silent, the second is held: nothing is sent, and the refusal has its status."""
    gate = asyncio.Event()
    held = asyncio.Event()
    scripts = {"req-made-0": [gate], "req-made-1": [NoWorker("none")]}

    class SecondHeld(ScriptedPipeline):
        def open(self, request):
            self.held = held if request.request_id == "req-made-1" else None
            return super().open(request)

    pipeline = SecondHeld(lambda request: scripts[request.request_id])
    body = {"model": MODEL, "prompt": ["a", "b"], "stream": True}
    async with serving(pipeline, tokenizer, ApiSettings(sse_ping_s=0.001)) as url, client(url) as http:
        asked = asyncio.create_task(http.post("/v1/completions", json=body))
        await until(lambda: pipeline.open_streams == 2)
        for _ in range(50):
            await asyncio.sleep(0.001)
        held.set()
        assert (await asked).status_code == 503


async def test_api_keys(tokenizer):
    pipeline = ScriptedPipeline(says(tokenizer, "hello"))
    async with serving(pipeline, tokenizer, ApiSettings(api_keys=("k1", "k2"))) as url, client(url) as http:
        for header, message in [
            (None, "You didn't provide an API key: send 'Authorization: Bearer YOUR_KEY'."),
            ("Basic k1", "You didn't provide an API key: send 'Authorization: Bearer YOUR_KEY'."),
            ("Bearer k3", "Incorrect API key provided."),
            ("Bearer k\xe9", "Incorrect API key provided."),
        ]:
            headers = {} if header is None else {"authorization": header.encode("latin-1")}
            answer = await http.post(CHAT, json=BODY, headers=headers)
            error = {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
            assert (answer.status_code, answer.json()) == (401, {"error": error})
            assert answer.headers["www-authenticate"] == "Bearer"
        for key in ("k1", "k2"):
            salted = {**BODY, "cache_salt": "s"}
            assert (await http.post(CHAT, json=salted, headers={"authorization": f"Bearer {key}"})).status_code == 200
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/v1/models")).status_code == 401
    salts = [request.cache_salt for request in pipeline.requests]
    assert len(set(salts)) == 2
    assert all(salt.endswith(":s") and "k1" not in salt for salt in salts)


async def test_a_model_may_have_several_names(tokenizer):
    pipeline = ScriptedPipeline(says(tokenizer, "hello"))
    settings = ApiSettings(served_model_name=("first", "second"))
    async with serving(pipeline, tokenizer, settings) as url, client(url) as http:
        assert [model["id"] for model in (await http.get("/v1/models")).json()["data"]] == ["first", "second"]
        for name in ("first", "second"):
            assert (await http.post(CHAT, json={**BODY, "model": name})).json()["model"] == name
        assert (await http.post(CHAT, json=BODY)).status_code == 404


async def test_prefixes_may_be_shared_between_keys(tokenizer):
    pipeline = ScriptedPipeline(says(tokenizer, "hello"))
    settings = ApiSettings(api_keys=("k1",), share_prefixes_between_keys=True)
    async with serving(pipeline, tokenizer, settings) as url, client(url, authorization="Bearer k1") as http:
        assert (await http.post(CHAT, json=BODY)).status_code == 200
    assert pipeline.requests[0].cache_salt == ""


@pytest.mark.parametrize(
    ("given", "used"),
    [("abc-1.2:3", "abc-1.2:3"), ("a b", "req-made"), ("x" * 129, "req-made"), ("", "req-made"), ("-x", "req-made")],
)
async def test_request_id(tokenizer, caplog, given, used):
    pipeline = ScriptedPipeline(says(tokenizer, "hello"))
    with caplog.at_level(logging.INFO, logger="kvarn.api"):
        async with serving(pipeline, tokenizer) as url, client(url, **{"x-request-id": given}) as http:
            assert (await http.post(CHAT, json=BODY)).headers["x-request-id"] == used
            assert (await http.get("/nothing")).headers["x-request-id"] == used
            assert (await http.get("/ready")).headers["x-request-id"] == used  # a probe: answered, not logged
    assert pipeline.requests[0].request_id == used
    lines = [record for record in caplog.records if record.message == "http_request"]
    assert [(line.request_id, line.status) for line in lines] == [(used, 200), (used, 404)]
    assert "hello" not in caplog.text


def _request():
    from kvarn_engine.core.ids import RequestId
    from kvarn_engine.core.sampling import SamplingParams
    from kvarn_router.context import GenerationRequest

    return GenerationRequest(RequestId("r"), (1,), SamplingParams(max_tokens=10))
