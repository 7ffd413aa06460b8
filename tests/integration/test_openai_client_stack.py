"""The official `openai` client against a real stack with the embedded model."""

from collections.abc import Iterator

import httpx
import openai
import pytest
from kvarn_engine.model_folder import EMBEDDED_MODEL

from tests.support.stack import Stack, StackSpec, running_stack

pytestmark = pytest.mark.model

MODEL = "smollm2"
QUESTION = [{"role": "user", "content": "What is the capital of Sweden? Answer in one short sentence."}]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = StackSpec(
        EMBEDDED_MODEL,
        worker_flags=("--dtype", "float32", "--num-blocks", "256"),
        decode_flags=("--local-prefill-max-tokens", "0"),
        served_name=MODEL,
    )
    with running_stack(spec, tmp_path_factory.mktemp("openai")) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=120) as opened:
        yield opened
    stack.wait_idle()


def test_chat_answers_with_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=24, temperature=0)
    assert "Stockholm" in answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.object == "chat.completion"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens < 24


def test_streamed_chat_is_the_whole_chat_in_pieces(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=24, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            max_tokens=24,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content
    assert len([piece for piece in pieces if piece]) > 1
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_completion_of_a_string_and_of_token_ids_agree(stack: Stack, client: openai.OpenAI) -> None:
    text = "The capital of France is"
    tokens = httpx.post(f"{stack.url}/tokenize", json={"model": MODEL, "prompt": text}).json()["tokens"]
    from_text = client.completions.create(model=MODEL, prompt=text, max_tokens=8, temperature=0)
    from_tokens = client.completions.create(model=MODEL, prompt=tokens, max_tokens=8, temperature=0)
    assert from_text.choices[0].text == from_tokens.choices[0].text
    assert "Paris" in from_text.choices[0].text
    assert from_text.usage.prompt_tokens == len(tokens)


def test_a_list_of_prompts_gives_a_choice_for_each(client: openai.OpenAI) -> None:
    prompts = ["One, two, three,", "Red, green,"]
    answer = client.completions.create(model=MODEL, prompt=prompts, max_tokens=4, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1]
    alone = [client.completions.create(model=MODEL, prompt=prompt, max_tokens=4, temperature=0) for prompt in prompts]
    assert [choice.text for choice in answer.choices] == [single.choices[0].text for single in alone]
    assert answer.usage.completion_tokens == sum(single.usage.completion_tokens for single in alone)


def test_three_choices_share_one_prompt(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, n=3, max_tokens=12, temperature=1.5, seed=11, extra_body={"ignore_eos": True}
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3
    assert answer.usage.completion_tokens == 36
    again = client.chat.completions.create(
        model=MODEL, messages=QUESTION, n=3, max_tokens=12, temperature=1.5, seed=11, extra_body={"ignore_eos": True}
    )
    assert [choice.message.content for choice in again.choices] == [choice.message.content for choice in answer.choices]


def test_chat_logprobs_name_the_sampled_token_first_when_greedy(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3
    )
    entries = answer.choices[0].logprobs.content
    assert len(entries) == 6
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token
        assert entry.logprob == pytest.approx(entry.top_logprobs[0].logprob)
        assert entry.logprob <= 0
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == answer.choices[0].message.content


def test_completion_logprobs_line_up_with_the_text(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="One, two,", max_tokens=5, temperature=0, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert "".join(logprobs.tokens) == answer.choices[0].text
    assert len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) == 5
    assert logprobs.text_offset[1] - logprobs.text_offset[0] == len(logprobs.tokens[0])


def test_a_stop_string_ends_the_answer_and_never_shows(client: openai.OpenAI) -> None:
    for stream in (False, True):
        answer = client.completions.create(
            model=MODEL, prompt="1, 2, 3, 4, 5, 6,", max_tokens=32, temperature=0, stop=[" 9,"], stream=stream
        )
        if stream:
            chunks = list(answer)
            text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
            reason = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1]
        else:
            text, reason = answer.choices[0].text, answer.choices[0].finish_reason
        assert text == " 7, 8,"
        assert reason == "stop"


def test_a_repeated_prompt_is_cached_and_usage_says_so(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Tell me about water mills in ten words. " * 6}]
    body = {"cache_salt": "usage-test"}
    cold, warm = (
        client.chat.completions.create(model=MODEL, messages=messages, max_tokens=2, temperature=0, extra_body=body)
        for _ in range(2)
    )
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert warm.usage.prompt_tokens_details.cached_tokens >= warm.usage.prompt_tokens - 16


@pytest.mark.parametrize("text", ["🙂🚀🌾👩‍👩‍👧‍👦", "北京是中国的首都，東京は日本の首都です。", "Ångström ñ 한국어 🇸🇪"])
def test_no_replacement_character_in_echoed_or_streamed_text(client: openai.OpenAI, text: str) -> None:
    echoed = client.completions.create(model=MODEL, prompt=text, max_tokens=1, temperature=0, echo=True)
    assert echoed.choices[0].text.startswith(text)
    chunks = client.completions.create(
        model=MODEL, prompt=text, max_tokens=12, temperature=0, echo=True, stream=True, extra_body={"ignore_eos": True}
    )
    pieces = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert "".join(pieces).startswith(text)
    whole = client.completions.create(
        model=MODEL, prompt=text, max_tokens=12, temperature=0, echo=True, extra_body={"ignore_eos": True}
    )
    assert "".join(pieces) == whole.choices[0].text
    assert "\ufffd" not in "".join(pieces[:-1])


def test_emoji_asked_for_come_whole(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Repeat exactly: 🙂🙂🙂🙂 北京北京北京"}]
    chunks = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=24, temperature=0, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert any(ord(character) > 0x2FFF for character in "".join(pieces)), "the model said no wide character at all"
    assert "\ufffd" not in "".join(pieces[:-1])


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_errors_have_the_status_that_the_client_expects(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
    with pytest.raises(openai.BadRequestError) as wrong_type:
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature="hot")
    assert wrong_type.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.completions.create(model=MODEL, prompt=[5] * 9000, max_tokens=1)
    assert "9000" in str(too_long.value)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=MODEL, prompt="a", suffix="b")
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=QUESTION, n=9)


def test_every_answer_carries_the_request_id_it_was_given(stack: Stack) -> None:
    body = {"model": MODEL, "prompt": "Hi", "max_tokens": 1}
    answer = httpx.post(f"{stack.url}/v1/completions", json=body, headers={"X-Request-Id": "trace-42"}, timeout=60)
    assert answer.headers["x-request-id"] == "trace-42"
    stack.wait_idle()
    for process in (stack.router, stack.prefill[0].process, stack.decode[0].process):
        assert process is not None
        assert "trace-42" in process.log_text(), process.name
