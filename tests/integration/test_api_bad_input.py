"""Every bad input has its exact status and OpenAI error body, over a real server."""

import asyncio
import json

import pytest
from kvarn_router.api.settings import ApiSettings
from kvarn_router.tokenization import Tokenizer

from tests.support.scripted_api import ScriptedPipeline, client, says, serving, write_tiny_tokenizer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hello"}]
SURROGATE = "\ud83d"


def typed(param, expected, got):
    return f"Invalid type for '{param}': expected {expected}, but got {got} instead.", param, "invalid_type"


def value(param, problem):
    return f"Invalid value for '{param}': {problem}.", param, "invalid_value"


def unsupported(param):
    return f"'{param}' is not supported by this server.", param, "unsupported_parameter"


def missing(param):
    return f"Missing required parameter: '{param}'.", param, "missing_required_parameter"


CHAT_CASES = [
    ({"temperature": "hot"}, typed("temperature", "a number", "a string")),
    ({"temperature": True}, typed("temperature", "a number", "a boolean")),
    ({"temperature": -0.1}, value("temperature", "must be between 0 and 2, but got -0.1")),
    ({"temperature": 2.5}, value("temperature", "must be between 0 and 2, but got 2.5")),
    ({"top_p": 0}, value("top_p", "must be above 0, but got 0")),
    ({"top_p": 1.01}, value("top_p", "must be between 0 and 1, but got 1.01")),
    ({"top_p": [1]}, typed("top_p", "a number", "an array")),
    ({"top_k": 1.5}, typed("top_k", "an integer", "a number")),
    ({"top_k": -2}, value("top_k", "must be between -1 and 2147483647, but got -2")),
    ({"min_p": 1.5}, value("min_p", "must be between 0 and 1, but got 1.5")),
    ({"min_p": "a"}, typed("min_p", "a number", "a string")),
    ({"frequency_penalty": 3}, value("frequency_penalty", "must be between -2 and 2, but got 3")),
    ({"presence_penalty": -3}, value("presence_penalty", "must be between -2 and 2, but got -3")),
    ({"presence_penalty": {}}, typed("presence_penalty", "a number", "an object")),
    ({"repetition_penalty": 0}, value("repetition_penalty", "must be above 0, but got 0")),
    (
        {"repetition_penalty": 10**400},
        value("repetition_penalty", "must be between 0 and 100, but got a very large number"),
    ),
    ({"n": 0}, value("n", "must be between 1 and 8, but got 0")),
    ({"n": 9}, value("n", "must be between 1 and 8, but got 9")),
    ({"n": "2"}, typed("n", "an integer", "a string")),
    ({"max_tokens": 0}, value("max_tokens", "must be between 1 and 2147483647, but got 0")),
    ({"max_tokens": 1.0}, typed("max_tokens", "an integer", "a number")),
    ({"max_completion_tokens": -1}, value("max_completion_tokens", "must be between 1 and 2147483647, but got -1")),
    ({"min_tokens": -1}, value("min_tokens", "must be between 0 and 2147483647, but got -1")),
    ({"min_tokens": 9, "max_tokens": 4}, value("min_tokens", "must be at most max_tokens (4), but got 9")),
    ({"min_tokens": 5000}, value("min_tokens", "must be at most the output limit of 381")),
    ({"seed": 1.5}, typed("seed", "an integer", "a number")),
    ({"seed": 2**64}, value("seed", f"must be between {-(2**63)} and {2**64 - 1}, but got {2**64}")),
    ({"stop": 5}, typed("stop", "a string or an array of strings", "an integer")),
    ({"stop": ""}, value("stop", "must not be empty")),
    ({"stop": ["a", ""]}, value("stop[1]", "must not be empty")),
    ({"stop": ["a", None]}, typed("stop[1]", "a string", "null")),
    ({"stop": ["a"] * 17}, value("stop", "must hold at most 16 strings, but got 17")),
    ({"stop_token_ids": 3}, typed("stop_token_ids", "an array", "an integer")),
    ({"stop_token_ids": ["3"]}, typed("stop_token_ids[0]", "an integer", "a string")),
    ({"stop_token_ids": [-1]}, value("stop_token_ids[0]", "token id -1 is outside the vocabulary of 317")),
    ({"logit_bias": [1]}, typed("logit_bias", "an object", "an array")),
    ({"logit_bias": {"x": 1}}, value("logit_bias", "keys must be token ids")),
    ({"logit_bias": {"1": 101}}, value("logit_bias.1", "must be between -100 and 100, but got 101")),
    ({"logit_bias": {"1": "a"}}, typed("logit_bias.1", "a number", "a string")),
    ({"logit_bias": {"99999": 1}}, value("logit_bias", "token id 99999 is outside the vocabulary of 317")),
    ({"logprobs": 1}, typed("logprobs", "a boolean", "an integer")),
    ({"logprobs": True, "top_logprobs": 21}, value("top_logprobs", "must be between 0 and 20, but got 21")),
    ({"top_logprobs": 2}, ("'top_logprobs' needs 'logprobs' to be true.", "top_logprobs", None)),
    ({"stream": "yes"}, typed("stream", "a boolean", "a string")),
    ({"stream": True, "stream_options": True}, typed("stream_options", "an object", "a boolean")),
    (
        {"stream": True, "stream_options": {"include_usage": 1}},
        typed("stream_options.include_usage", "a boolean", "an integer"),
    ),
    (
        {"stream_options": {"include_usage": True}},
        ("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options", None),
    ),
    ({"ignore_eos": "no"}, typed("ignore_eos", "a boolean", "a string")),
    ({"skip_special_tokens": 0}, typed("skip_special_tokens", "a boolean", "an integer")),
    ({"include_stop_str_in_output": "x"}, typed("include_stop_str_in_output", "a boolean", "a string")),
    ({"priority": "high"}, typed("priority", "an integer", "a string")),
    ({"cache_salt": ""}, value("cache_salt", "must be 1 to 256 characters")),
    ({"cache_salt": 7}, typed("cache_salt", "a string", "an integer")),
    ({"chat_template_kwargs": []}, typed("chat_template_kwargs", "an object", "an array")),
    (
        {"chat_template_kwargs": {"messages": []}},
        ("'messages' cannot be set in 'chat_template_kwargs'", "chat_template_kwargs", None),
    ),
    (
        {"continue_final_message": True, "add_generation_prompt": True},
        (
            "'continue_final_message' and 'add_generation_prompt' cannot both be true.",
            "continue_final_message",
            None,
        ),
    ),
    ({"tools": [{"type": "function"}]}, unsupported("tools")),
    ({"functions": [{}]}, unsupported("functions")),
    ({"tool_choice": "required"}, unsupported("tool_choice")),
    ({"function_call": {"name": "f"}}, unsupported("function_call")),
    ({"audio": {"voice": "a"}}, unsupported("audio")),
    (
        {"modalities": ["audio"]},
        ("'modalities' other than text are not supported.", "modalities", "unsupported_parameter"),
    ),
    (
        {"response_format": {"type": "json_object"}},
        (
            '\'response_format\' other than {"type": "text"} is not supported by this server.',
            "response_format",
            "unsupported_parameter",
        ),
    ),
    ({"response_format": "json"}, typed("response_format", "an object", "a string")),
    ({"messages": None}, missing("messages")),
    ({"messages": "hello"}, typed("messages", "an array", "a string")),
    ({"messages": []}, value("messages", "must hold 1 to 4096 messages, but got 0")),
    ({"messages": ["hello"]}, typed("messages[0]", "an object", "a string")),
    ({"messages": [{"content": "x"}]}, missing("messages[0].role")),
    ({"messages": [{"role": "user"}]}, missing("messages[0].content")),
    ({"messages": [{"role": 1, "content": "x"}]}, typed("messages[0].role", "a string", "an integer")),
    (
        {"messages": [{"role": "wizard", "content": "x"}]},
        value("messages[0].role", "must be one of system, developer, user, assistant"),
    ),
    (
        {"messages": [{"role": "tool", "content": "x"}]},
        ("Messages of role 'tool' are not supported.", "messages[0].role", "unsupported_parameter"),
    ),
    (
        {"messages": [{"role": "user", "content": 5}]},
        typed("messages[0].content", "a string or an array of content parts", "an integer"),
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        (
            "Content parts other than text are not supported ('messages[0].content[0].type').",
            "messages[0].content[0].type",
            "unsupported_content",
        ),
    ),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, missing("messages[0].content[0].type")),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, missing("messages[0].content[0].text")),
    ({"messages": [{"role": "user", "content": ["x"]}]}, typed("messages[0].content[0]", "an object", "a string")),
    (
        {"messages": [{"role": "user", "content": SURROGATE}]},
        value("messages[0].content", "holds an unpaired surrogate"),
    ),
    (
        {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]},
        ("'messages[0].tool_calls' is not supported.", "messages[0].tool_calls", "unsupported_parameter"),
    ),
    ({"user": 5}, typed("user", "a string", "an integer")),
    ({"model": 5}, typed("model", "a string", "an integer")),
    ({"model": None}, ("you must provide a model parameter", "model", "missing_required_parameter")),
    (
        {"max_tokens": 390},
        (
            "This model's maximum context length is 400 tokens, but the prompt has 19 and 390 tokens of output "
            "were asked for.",
            "messages",
            "context_length_exceeded",
        ),
    ),
]

TEXT_CASES = [
    ({"prompt": None}, missing("prompt")),
    ({"prompt": 5}, typed("prompt", "a string or an array", "an integer")),
    ({"prompt": ""}, value("prompt", "must not be empty")),
    ({"prompt": []}, value("prompt", "must not be empty")),
    ({"prompt": ["a", ""]}, value("prompt[1]", "must not be empty")),
    ({"prompt": ["a", 1]}, typed("prompt[1]", "a string", "an integer")),
    ({"prompt": [1, "a"]}, typed("prompt[1]", "an integer", "a string")),
    ({"prompt": [[1], "a"]}, typed("prompt[1]", "an array of token ids", "a string")),
    ({"prompt": [[]]}, value("prompt[0]", "must not be empty")),
    ({"prompt": [True]}, typed("prompt[0]", "a string or an array of token ids", "a boolean")),
    ({"prompt": [[1, 317]]}, value("prompt[0][1]", "token id 317 is outside the vocabulary of 317")),
    ({"prompt": ["a"] * 33}, value("prompt", "must hold at most 32 prompts, but got 33")),
    ({"prompt": SURROGATE}, value("prompt", "holds an unpaired surrogate")),
    ({"suffix": "end"}, unsupported("suffix")),
    ({"echo": 1}, typed("echo", "a boolean", "an integer")),
    (
        {"echo": True, "logprobs": 0},
        (
            "'echo' together with 'logprobs' is not supported: prompt tokens have no logprobs here.",
            "echo",
            "unsupported_parameter",
        ),
    ),
    ({"logprobs": 6}, value("logprobs", "must be between 0 and 5, but got 6")),
    ({"logprobs": True}, typed("logprobs", "an integer", "a boolean")),
    ({"best_of": 3}, ("'best_of' other than 'n' is not supported.", "best_of", "unsupported_parameter")),
    (
        {"prompt": [5] * 400},
        (
            "This model's maximum context length is 400 tokens, but the prompt has 400 and 4 tokens of output "
            "were asked for.",
            "prompt",
            "context_length_exceeded",
        ),
    ),
]

RAW_CASES = [
    (b"", 400, "The body is not valid JSON.", "invalid_json"),
    (b"{", 400, "The body is not valid JSON.", "invalid_json"),
    (b"\xff\xfe", 400, "The body is not valid JSON.", "invalid_json"),
    (b'{"temperature": NaN}', 400, "The body is not valid JSON.", "invalid_json"),
    (b'{"seed": 1' + b"0" * 5000 + b"}", 400, "The body is not valid JSON.", "invalid_json"),
    (b"[" * 9000, 400, "The body is not valid JSON.", "invalid_json"),
    (b"[]", 400, "The body must be a JSON object, but is an array.", "invalid_json"),
    (b"null", 400, "The body must be a JSON object, but is null.", "invalid_json"),
    (b" " * 20_001, 413, "The request body is larger than the limit of 20000 bytes.", "request_too_large"),
]

PATH_CASES = [
    ("POST", "/v1/unknown", 404, "There is no such path on this server.", "not_found"),
    ("GET", "/", 404, "There is no such path on this server.", "not_found"),
    ("POST", "/v1/models/", 405, "This path does not take this method.", "method_not_allowed"),
    ("GET", CHAT, 405, "This path does not take this method.", "method_not_allowed"),
    ("DELETE", TEXT, 405, "This path does not take this method.", "method_not_allowed"),
    ("GET", "/v1/models/other", 404, "The model `other` does not exist", "model_not_found"),
]

OTHER_CASES = [
    ("/tokenize", {}, missing("prompt")),
    ("/tokenize", {"prompt": 1}, typed("prompt", "a string", "an integer")),
    (
        "/tokenize",
        {"prompt": "a", "messages": MESSAGES},
        ("Give either 'prompt' or 'messages', not both.", "prompt", None),
    ),
    ("/detokenize", {}, missing("tokens")),
    ("/detokenize", {"tokens": "a"}, typed("tokens", "an array", "a string")),
    ("/detokenize", {"tokens": [1.5]}, typed("tokens[0]", "an integer", "a number")),
    ("/detokenize", {"tokens": [-4]}, value("tokens[0]", "token id -4 is outside the vocabulary of 317")),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    loaded = Tokenizer.load(write_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))
    yield loaded
    loaded.close()


@pytest.fixture
async def api(tokenizer):
    pipeline = ScriptedPipeline(says(tokenizer, "ok"))
    async with serving(pipeline, tokenizer, ApiSettings(max_body_bytes=20_000)) as url, client(url) as http:
        yield http
    assert pipeline.requests == []


def error(message, param, code):
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_fields(api, stream):
    for change, expected in CHAT_CASES:
        stream_field = {"stream": True} if stream and "stream_options" not in change else {}
        body = {"model": "tiny", "messages": MESSAGES, **stream_field, **change}
        answer = await api.post(CHAT, content=json.dumps(body))
        assert (answer.status_code, answer.json()) == (400, error(*expected)), change


async def test_completion_fields(api):
    for change, expected in TEXT_CASES:
        answer = await api.post(TEXT, content=json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 4, **change}))
        assert (answer.status_code, answer.json()) == (400, error(*expected)), change


async def test_other_fields(api):
    for path, body, expected in OTHER_CASES:
        answer = await api.post(path, json=body)
        assert (answer.status_code, answer.json()) == (400, error(*expected)), body


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_unknown_model(api, path):
    answer = await api.post(path, json={"model": "gpt-9", "messages": MESSAGES, "prompt": "a"})
    assert answer.status_code == 404
    assert answer.json() == error("The model `gpt-9` does not exist", "model", "model_not_found")


@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/detokenize"])
async def test_bodies(api, path):
    for body, status, message, code in RAW_CASES:
        answer = await api.post(path, content=body)
        assert (answer.status_code, answer.json()) == (status, error(message, None, code)), body[:20]


async def test_paths_and_methods(api):
    for method, path, status, message, code in PATH_CASES:
        answer = await api.request(method, path)
        param = "model" if code == "model_not_found" else None
        assert (answer.status_code, answer.json()) == (status, error(message, param, code)), path
        assert answer.headers["x-request-id"] == "req-made"


async def test_chunked_body_over_the_limit(api):
    async def chunks():
        for _ in range(100):
            yield b" " * 1000

    answer = await api.post(CHAT, content=chunks())
    message = "The request body is larger than the limit of 20000 bytes."
    assert (answer.status_code, answer.json()) == (413, error(message, None, "request_too_large"))


async def test_announced_body_over_the_limit_is_refused_before_it_is_sent(api):
    reader, writer = await asyncio.open_connection(api.base_url.host, api.base_url.port)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1000000000000\r\n\r\n"
    writer.write(head.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()
    await writer.wait_closed()


def test_the_table_is_long_enough():
    assert len(CHAT_CASES) + len(TEXT_CASES) + len(RAW_CASES) + len(PATH_CASES) + len(OTHER_CASES) >= 60
