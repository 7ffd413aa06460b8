"""What a decode worker is sent for one attempt. Called by `stream`; the mapping to the wire and nothing else."""

from collections.abc import Sequence
from dataclasses import replace

from kvarn_engine.wire.convert import sampling_to_proto
from kvarn_proto.v1 import common_pb2, decode_pb2

from kvarn_router.context import GenerationRequest
from kvarn_router.dispatcher import Placement
from kvarn_router.progress import ChoiceProgress


def generate_request(
    request: GenerationRequest, choices: Sequence[ChoiceProgress], placement: Placement, router_id: str
) -> decode_pb2.GenerateRequest:
    """Clients of two routers may choose one request id, so on the wire it carries the router's own too."""
    return decode_pb2.GenerateRequest(
        request_id=f"{request.request_id}@{router_id}",
        prompt_tokens=request.prompt_tokens,
        sampling=sampling_to_proto(replace(request.sampling, max_tokens=placement.max_tokens)),
        choices=[common_pb2.Choice(index=choice.index, output_tokens=choice.output_tokens) for choice in choices],
        prefill_peers=[
            decode_pb2.Peer(
                worker_id=peer.identity.worker_id,
                incarnation=peer.identity.incarnation,
                address=peer.identity.address,
            )
            for peer in placement.peers
        ],
        root_hash=placement.root,
        priority=request.priority,
    )
