import json

import pytest
from kvarn_bench.sse import Chunk, StreamError, Usage, read_line


def data(body: object) -> str:
    return f"data: {json.dumps(body)}"


@pytest.mark.parametrize("line", ["", ": ping", "event: message", "id: 3"])
def test_lines_without_data_are_nothing(line: str) -> None:
    assert read_line(line) is None


def test_text_of_both_api_shapes() -> None:
    assert read_line(data({"choices": [{"text": "mill"}]})) == Chunk(text="mill")
    assert read_line(data({"choices": [{"delta": {"content": "mill"}}]})) == Chunk(text="mill")


def test_a_role_chunk_has_no_text() -> None:
    assert read_line(data({"choices": [{"delta": {"role": "assistant"}}]})) == Chunk()


def test_usage_with_and_without_cached_tokens() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}}
    assert read_line(data({"choices": [], "usage": usage})) == Chunk(usage=Usage(9, 8, 4))
    plain = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": None}
    assert read_line(data({"choices": [], "usage": plain})) == Chunk(usage=Usage(9, 0, 4))


def test_done_closes() -> None:
    assert read_line("data: [DONE]") == Chunk(done=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (data({"error": {"message": "gone"}}), "error event"),
        ("data: {", "not JSON"),
        ("data: 3", "not an object"),
    ],
)
def test_what_is_no_chunk_ends_the_stream(line: str, message: str) -> None:
    with pytest.raises(StreamError, match=message):
        read_line(line)
