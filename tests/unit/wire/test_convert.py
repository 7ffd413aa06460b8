"""Core values survive the wire."""

import pytest
from kvarn_engine.core.errors import InvalidRequest
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.sampling import FinishReason, SampledToken, SamplingParams, TopLogprob
from kvarn_engine.serving.protocol import LoadReport
from kvarn_engine.wire import convert
from kvarn_proto.v1 import common_pb2


def test_sampling_survives() -> None:
    params = SamplingParams(
        max_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=40,
        min_p=0.125,
        frequency_penalty=-0.5,
        presence_penalty=1.5,
        repetition_penalty=1.25,
        logit_bias={3: -100.0, 9: 2.5},
        seed=2**64 - 1,
        logprobs=0,
        min_tokens=2,
        stop_token_ids=frozenset({5, 1}),
        ignore_eos=True,
    )
    assert convert.sampling_from_proto(convert.sampling_to_proto(params)) == params


def test_absent_logprobs_stay_absent() -> None:
    params = SamplingParams(max_tokens=1)
    assert convert.sampling_from_proto(convert.sampling_to_proto(params)).logprobs is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", 0), ("temperature", -1.0), ("temperature", float("nan")), ("top_p", 0.0), ("top_p", 1.5),
     ("repetition_penalty", 0.0)],
)
def test_impossible_sampling_names_its_field(field: str, value: float) -> None:
    message = convert.sampling_to_proto(SamplingParams(max_tokens=1))
    setattr(message, field, value)
    with pytest.raises(InvalidRequest) as raised:
        convert.sampling_from_proto(message)
    assert raised.value.field == field


def test_unset_sampling_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        convert.sampling_from_proto(common_pb2.Sampling())


@pytest.mark.parametrize(
    "token",
    [
        SampledToken(3),
        SampledToken(0, 0.0),
        SampledToken(5, -0.5, (TopLogprob(5, -0.5), TopLogprob(8, -2.0))),
    ],
)
def test_token_survives(token: SampledToken) -> None:
    assert convert.token_from_proto(convert.token_to_proto(token)) == token


def test_layout_survives_with_its_fingerprint() -> None:
    layout = KvLayout("revision", "bfloat16", 30, 3, 64, 16)
    message = convert.layout_to_proto(layout)
    assert message.block_bytes == layout.block_bytes
    assert convert.layout_from_proto(message).fingerprint == layout.fingerprint


@pytest.mark.parametrize("reason", list(FinishReason))
def test_finish_reason_survives(reason: FinishReason) -> None:
    assert convert.finish_reason_from_proto(convert.finish_reason_to_proto(reason)) is reason


def test_load_survives() -> None:
    report = LoadReport(1, 2, 3, 4, 5, 6, 7.5, 0.25)
    message = convert.load_to_proto(report, draining=True)
    assert message.draining
    assert convert.load_from_proto(message) == report
