"""Answers of the API in the official client's eyes, with a scripted pipeline behind a real server."""

import json
import logging

import httpx
import openai
import pytest
from kvarn_engine.core.sampling import FinishReason
from kvarn_router.tokenization import Tokenizer

from tests.support.scripted_api import (
    MODEL,
    ScriptedPipeline,
    client,
    says,
    serving,
    sse_payloads,
    write_tiny_tokenizer,
)

SAID = "one 日本 👩‍👩‍👧 two"
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    loaded = Tokenizer.load(write_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))
    yield loaded
    loaded.close()


@pytest.fixture
async def pipeline(tokenizer):
    return ScriptedPipeline(says(tokenizer, SAID + "<|im_end|>", cached=16))


@pytest.fixture
async def url(pipeline, tokenizer):
    async with serving(pipeline, tokenizer) as address:
        yield address
    assert pipeline.open_streams == 0


@pytest.fixture
async def sdk(url):
    transport = httpx.AsyncClient(trust_env=False)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=transport) as made:
        yield made


def count(tokenizer, text):
    return len(tokenizer._encode(text, add_special_tokens=False))


async def test_chat_answer(sdk, pipeline, tokenizer):
    answer = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=300)
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.role, choice.finish_reason) == (SAID, "assistant", "stop")
    assert (answer.object, answer.model, answer.created) == ("chat.completion", MODEL, 1_700_000_000)
    assert answer.id == "chatcmpl-req-made"
    assert answer.usage.completion_tokens == count(tokenizer, SAID) + 1
    assert answer.usage.prompt_tokens == len(pipeline.requests[0].prompt_tokens)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens == 16
    assert pipeline.requests[0].sampling.seed == 4242
    assert pipeline.requests[0].sampling.max_tokens == 300


async def test_chat_stream(sdk):
    options = {"include_usage": True}
    stream = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, stream_options=options)
    chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert deltas[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in deltas) == SAID
    assert not any("\ufffd" in (choice.delta.content or "") for choice in deltas)
    assert [choice.finish_reason for choice in deltas] == [None] * (len(deltas) - 1) + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 16
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_stream_without_usage_has_none(url):
    async with client(url) as http:
        answer = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "stream": True})
    payloads = sse_payloads(answer.text)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert payloads[-1] == "[DONE]"
    assert all("usage" not in json.loads(payload) for payload in payloads[:-1])


@pytest.mark.parametrize("stream", [False, True])
async def test_choices_share_one_request(sdk, pipeline, stream):
    answer = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, n=8, seed=-1, stream=stream)
    texts = dict.fromkeys(range(8), "")
    if stream:
        async for chunk in answer:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
    else:
        texts = {choice.index: choice.message.content for choice in answer.choices}
    assert texts == dict.fromkeys(range(8), SAID)
    assert [request.num_choices for request in pipeline.requests] == [8]
    assert pipeline.requests[0].sampling.seed == 2**64 - 1


async def test_chat_logprobs(sdk, tokenizer):
    answer = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries) == SAID.encode() + b"<|im_end|>"
    assert all(entry.logprob == -0.25 and len(entry.top_logprobs) == 3 for entry in entries)
    assert not any("\ufffd" in entry.token for entry in entries)


async def test_streamed_logprobs_are_the_same(sdk):
    whole = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, logprobs=True)
    stream = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, logprobs=True, stream=True)
    entries = [entry async for c in stream for entry in (c.choices[0].logprobs and c.choices[0].logprobs.content) or ()]
    assert entries == whole.choices[0].logprobs.content


async def test_completion_logprobs(sdk, tokenizer):
    answer = await sdk.completions.create(model=MODEL, prompt="a", logprobs=2, extra_body={"ignore_eos": True})
    logprobs = answer.choices[0].logprobs
    assert logprobs.text_offset[:2] == [0, len(logprobs.tokens[0])]
    assert set(logprobs.token_logprobs) == {-0.25}
    assert len(logprobs.tokens) == len(logprobs.top_logprobs) == answer.usage.completion_tokens


async def test_completion_logprobs_hold_the_drawn_token_too(sdk):
    answer = await sdk.completions.create(model=MODEL, prompt="a", logprobs=0)
    logprobs = answer.choices[0].logprobs
    assert logprobs.top_logprobs == [{token: -0.25} for token in logprobs.tokens]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "extra", "expected"),
    [
        ("本", {}, "one 日"),
        (["x", " two"], {}, "one 日本 👩‍👩‍👧"),
        (["e 日本 "], {}, "on"),
        (["e 日本 "], {"include_stop_str_in_output": True}, "one 日本 "),
        (["one"], {"min_tokens": 8}, SAID),
        (["two!"], {}, SAID),
    ],
)
async def test_stop_strings(sdk, pipeline, stop, extra, expected, stream):
    answer = await sdk.chat.completions.create(
        model=MODEL, messages=MESSAGES, stop=stop, stream=stream, logprobs=True, extra_body=extra
    )
    if stream:
        choices = [chunk.choices[0] async for chunk in answer]
        text = "".join(choice.delta.content or "" for choice in choices)
        entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
        finish = choices[-1].finish_reason
    else:
        (choice,) = answer.choices
        text, entries, finish = choice.message.content, choice.logprobs.content, choice.finish_reason
    shown = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="ignore").removesuffix("<|im_end|>")
    assert (text, finish) == (expected, "stop")
    assert expected.startswith(shown)
    assert pipeline.stopped == ([] if expected == SAID else [0])


async def test_only_the_choice_with_the_stop_string_ends(tokenizer):
    texts = ("stop here", "go on here")

    def script(request):
        first, second = (says(tokenizer, text)(request) for text in texts)
        mine = [step for step in first if getattr(step, "choice", 1) == 0]
        return [*mine, *(step for step in second if getattr(step, "choice", 1) == 1)]

    pipeline = ScriptedPipeline(script)
    async with serving(pipeline, tokenizer) as url, client(url) as http:
        body = {"model": MODEL, "messages": MESSAGES, "n": 2, "stop": "stop", "max_tokens": 50}
        answer = (await http.post("/v1/chat/completions", json=body)).json()
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["", "go on here"]
    assert pipeline.stopped == [0]


@pytest.mark.parametrize("stream", [False, True])
async def test_length_is_a_finish_reason(tokenizer, stream):
    pipeline = ScriptedPipeline(says(tokenizer, "cut 🙂"[:4], FinishReason.LENGTH))
    async with serving(pipeline, tokenizer) as url, client(url) as http:
        body = {"model": MODEL, "prompt": "a", "stream": stream}
        text = (await http.post("/v1/completions", json=body)).text
    assert '"finish_reason":"length"' in text
    assert pipeline.requests[0].sampling.max_tokens == 16


async def test_prompt_forms(sdk, pipeline, tokenizer):
    ids = list(tokenizer._encode("hello", add_special_tokens=True))
    for prompt in ("hello", ["hello"], ids, [ids]):
        await sdk.completions.create(model=MODEL, prompt=prompt)
        assert list(pipeline.requests.pop().prompt_tokens) == ids


@pytest.mark.parametrize("stream", [False, True])
async def test_several_prompts_with_echo(sdk, pipeline, stream):
    prompts = ["hello ", "the fox "]
    answer = await sdk.completions.create(model=MODEL, prompt=prompts, n=2, echo=True, stream=stream)
    texts = ["", "", "", ""]
    if stream:
        async for chunk in answer:
            texts[chunk.choices[0].index] += chunk.choices[0].text
    else:
        texts = [choice.text for choice in answer.choices]
        assert answer.usage.prompt_tokens_details.cached_tokens == 32
    assert texts == [prompt + SAID for prompt in prompts for _ in range(2)]
    assert {request.request_id for request in pipeline.requests} == {"req-made-0", "req-made-1"}


async def test_parameters_reach_the_pipeline(sdk, pipeline):
    extra = {
        "top_k": 5,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "min_tokens": 2,
        "ignore_eos": True,
        "stop_token_ids": [7, 8],
        "priority": -3,
        "cache_salt": "s",
        "never_heard_of": {"x": 1},
    }
    await sdk.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        temperature=0,
        top_p=0.5,
        frequency_penalty=0.25,
        presence_penalty=-0.5,
        logit_bias={"5": -100},
        max_completion_tokens=9,
        user="somebody",
        extra_body=extra,
    )
    (request,) = pipeline.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 0.5, 5, 0.1)
    assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.repetition_penalty) == (0.25, -0.5, 1.2)
    assert (dict(sampling.logit_bias), sampling.max_tokens, sampling.min_tokens) == ({5: -100.0}, 9, 2)
    assert (sampling.ignore_eos, sampling.stop_token_ids, sampling.logprobs) == (True, {7, 8}, None)
    assert (request.priority, request.cache_salt, request.num_choices) == (-3, "s", 1)


async def test_special_tokens_are_shown_on_request(sdk):
    shown = {"skip_special_tokens": False, "ignore_eos": True}
    answer = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body=shown)
    assert answer.choices[0].message.content == SAID + "<|im_end|>"
    hidden = {"skip_special_tokens": False}
    answer = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body=hidden)
    assert answer.choices[0].message.content == SAID


async def test_chat_prompt(sdk, pipeline, tokenizer):
    parts = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    await sdk.chat.completions.create(model=MODEL, messages=messages)
    expected = (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nfirst\nsecond<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.decode(pipeline.requests.pop().prompt_tokens) == expected
    messages = [*MESSAGES, {"role": "assistant", "content": "I was about to"}]
    await sdk.chat.completions.create(model=MODEL, messages=messages, extra_body={"continue_final_message": True})
    assert tokenizer.decode(pipeline.requests.pop().prompt_tokens).endswith("<|im_start|>assistant\nI was about to")


async def test_models_and_status(url, sdk, pipeline, caplog):
    assert [model.id async for model in sdk.models.list()] == [MODEL]
    assert (await sdk.models.retrieve(MODEL)).id == MODEL
    async with client(url) as http:
        assert (await http.get("/health")).json() == {"status": "ok"}
        assert (await http.get("/ready")).status_code == 200
        pipeline.ready = False
        with caplog.at_level(logging.INFO, logger="kvarn.api"):
            refused = await http.get("/ready")
        assert caplog.records == []  # it is asked every few seconds
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        metrics = (await http.get("/metrics")).text
        assert 'kvarn_api_requests_total{path="/ready",status="503"} 1.0' in metrics
        assert "kvarn_api_requests_in_flight 1.0" in metrics


async def test_token_metrics(url, sdk):
    await sdk.chat.completions.create(model=MODEL, messages=MESSAGES)
    async with client(url) as http:
        metrics = (await http.get("/metrics")).text
    assert "kvarn_api_ttft_seconds_count 1.0" in metrics
    assert "kvarn_api_itl_seconds_count 0.0" not in metrics


async def test_tokenize_and_back(url, tokenizer):
    async with client(url) as http:
        body = {"model": MODEL, "prompt": "hello 🙂", "return_token_strs": True}
        answer = (await http.post("/tokenize", json=body)).json()
        assert tuple(answer["tokens"]) == await tokenizer.encode("hello 🙂")
        assert (answer["count"], answer["max_model_len"]) == (len(answer["tokens"]), 400)
        assert answer["token_strs"][0] == "<|endoftext|>"
        back = (await http.post("/detokenize", json={"tokens": answer["tokens"]})).json()
        assert back == {"prompt": "<|endoftext|>hello 🙂"}
        chat = (await http.post("/tokenize", json={"messages": MESSAGES, "add_generation_prompt": False})).json()
        assert tokenizer.decode(chat["tokens"]) == "<|im_start|>user\nhello<|im_end|>\n"
