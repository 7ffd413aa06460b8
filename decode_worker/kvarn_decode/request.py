"""A GenerateRequest as this worker's own values, checked."""

from dataclasses import dataclass

from kvarn_engine.core.errors import InvalidRequest
from kvarn_engine.core.ids import BlockHash, RequestId, TokenId, WorkerId
from kvarn_engine.serving.protocol import ChoiceSpec, RequestSpec
from kvarn_engine.wire.convert import sampling_from_proto
from kvarn_proto.v1 import decode_pb2

ROOT_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class Peer:
    worker_id: WorkerId
    address: str


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    spec: RequestSpec
    peers: tuple[Peer, ...]
    """Best first."""

    @property
    def prefill_tokens(self) -> tuple[TokenId, ...]:
        """What must be in the KV cache before the next token: the prompt, and the output so far of a single choice."""
        return self.spec.prompt_tokens + self.spec.choices[0].output_tokens

    @property
    def can_use_peers(self) -> bool:
        """Resumed choices have diverged: several of them need several prefills, which this worker does itself."""
        resumed = any(choice.output_tokens for choice in self.spec.choices)
        return bool(self.peers) and (len(self.spec.choices) == 1 or not resumed)


def read_request(message: decode_pb2.GenerateRequest) -> DecodeRequest:
    """Raises InvalidRequest for what a router got wrong."""
    if not message.prompt_tokens:
        raise InvalidRequest("prompt_tokens", "prompt_tokens must hold at least one token")
    indexes = [choice.index for choice in message.choices]
    if not indexes or len(set(indexes)) != len(indexes):
        raise InvalidRequest("choices", "choices must hold one or more distinct indexes")
    if len(message.root_hash) != ROOT_HASH_BYTES:
        raise InvalidRequest("root_hash", f"root_hash must have {ROOT_HASH_BYTES} bytes")
    spec = RequestSpec(
        request_id=RequestId(message.request_id),
        prompt_tokens=tuple(message.prompt_tokens),
        sampling=sampling_from_proto(message.sampling),
        choices=tuple(ChoiceSpec(choice.index, tuple(choice.output_tokens)) for choice in message.choices),
        root_hash=BlockHash(message.root_hash),
        priority=message.priority,
    )
    peers = tuple(Peer(WorkerId(peer.worker_id), peer.address) for peer in message.prefill_peers)
    return DecodeRequest(spec, peers)
