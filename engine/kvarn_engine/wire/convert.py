"""Core values to protobuf messages and back.

Called by worker services and by the router's clients. Knows nothing of channels, frames or engines.
"""

from collections.abc import Iterable

from kvarn_proto.v1 import common_pb2, decode_pb2, worker_pb2

from kvarn_engine.core.errors import InvalidRequest
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.sampling import FinishReason, SampledToken, SamplingParams, TopLogprob
from kvarn_engine.serving.protocol import LoadReport

_REASON_TO_PROTO = {
    FinishReason.STOP: decode_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: decode_pb2.FINISH_REASON_LENGTH,
    FinishReason.ABORTED: decode_pb2.FINISH_REASON_ABORTED,
}
_REASON_FROM_PROTO = {number: reason for reason, number in _REASON_TO_PROTO.items()}


def sampling_to_proto(params: SamplingParams) -> common_pb2.Sampling:
    return common_pb2.Sampling(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        frequency_penalty=params.frequency_penalty,
        presence_penalty=params.presence_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=dict(params.logit_bias),
        seed=params.seed,
        logprobs=params.logprobs,
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        stop_token_ids=sorted(params.stop_token_ids),
        ignore_eos=params.ignore_eos,
    )


def sampling_from_proto(message: common_pb2.Sampling) -> SamplingParams:
    """Raises InvalidRequest for values no router sends. Floats come back as float32, on both workers alike."""
    if message.max_tokens < 1:
        raise InvalidRequest("max_tokens", "max_tokens must be at least 1")
    if not message.temperature >= 0.0:
        raise InvalidRequest("temperature", f"temperature must not be below 0, got {message.temperature}")
    if not 0.0 < message.top_p <= 1.0:
        raise InvalidRequest("top_p", f"top_p must be above 0 and at most 1, got {message.top_p}")
    if not message.repetition_penalty > 0.0:
        raise InvalidRequest(
            "repetition_penalty", f"repetition_penalty must be above 0, got {message.repetition_penalty}"
        )
    return SamplingParams(
        max_tokens=message.max_tokens,
        temperature=message.temperature,
        top_p=message.top_p,
        top_k=message.top_k,
        min_p=message.min_p,
        frequency_penalty=message.frequency_penalty,
        presence_penalty=message.presence_penalty,
        repetition_penalty=message.repetition_penalty,
        logit_bias=dict(message.logit_bias),
        seed=message.seed,
        logprobs=message.logprobs if message.HasField("logprobs") else None,
        min_tokens=message.min_tokens,
        stop_token_ids=frozenset(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
    )


def token_to_proto(token: SampledToken) -> common_pb2.SampledToken:
    return common_pb2.SampledToken(
        token_id=token.token_id,
        logprob=token.logprob,
        top_logprobs=[common_pb2.TopLogprob(token_id=top.token_id, logprob=top.logprob) for top in token.top_logprobs],
    )


def tokens_to_proto(tokens: Iterable[SampledToken]) -> list[common_pb2.SampledToken]:
    return [token_to_proto(token) for token in tokens]


def token_from_proto(message: common_pb2.SampledToken) -> SampledToken:
    return SampledToken(
        token_id=message.token_id,
        logprob=message.logprob if message.HasField("logprob") else None,
        top_logprobs=tuple(TopLogprob(top.token_id, top.logprob) for top in message.top_logprobs),
    )


def layout_to_proto(layout: KvLayout) -> common_pb2.KvLayout:
    return common_pb2.KvLayout(
        model_revision=layout.model_revision,
        dtype=layout.dtype,
        num_layers=layout.num_layers,
        num_kv_heads=layout.num_kv_heads,
        head_dim=layout.head_dim,
        block_size=layout.block_size,
        block_bytes=layout.block_bytes,
    )


def layout_from_proto(message: common_pb2.KvLayout) -> KvLayout:
    return KvLayout(
        model_revision=message.model_revision,
        dtype=message.dtype,
        num_layers=message.num_layers,
        num_kv_heads=message.num_kv_heads,
        head_dim=message.head_dim,
        block_size=message.block_size,
    )


def finish_reason_to_proto(reason: FinishReason) -> decode_pb2.FinishReason:
    return _REASON_TO_PROTO[reason]


def finish_reason_from_proto(number: decode_pb2.FinishReason) -> FinishReason:
    """A reason this build does not know ends the choice all the same: as STOP."""
    return _REASON_FROM_PROTO.get(number, FinishReason.STOP)


def load_to_proto(report: LoadReport, draining: bool) -> worker_pb2.Load:
    return worker_pb2.Load(
        running=report.running,
        waiting=report.waiting,
        blocks_total=report.blocks_total,
        blocks_in_use=report.blocks_in_use,
        blocks_cached=report.blocks_cached,
        queued_prefill_tokens=report.queued_prefill_tokens,
        prefill_tokens_per_s=report.prefill_tokens_per_s,
        decode_step_s=report.decode_step_s,
        draining=draining,
    )


def load_from_proto(message: worker_pb2.Load) -> LoadReport:
    return LoadReport(
        running=message.running,
        waiting=message.waiting,
        blocks_total=message.blocks_total,
        blocks_in_use=message.blocks_in_use,
        blocks_cached=message.blocks_cached,
        queued_prefill_tokens=message.queued_prefill_tokens,
        prefill_tokens_per_s=message.prefill_tokens_per_s,
        decode_step_s=message.decode_step_s,
    )
