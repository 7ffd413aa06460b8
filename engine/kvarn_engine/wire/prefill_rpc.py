"""`Prefill.Run` as a gRPC method whose responses are raw frames: no protobuf around KV bytes.

Used by the prefill worker to register its servicer and by the decode worker to call it.
"""

from typing import Protocol

import grpc
import grpc.aio
from kvarn_proto.v1 import prefill_pb2

SERVICE = "kvarn.v1.Prefill"

RunContext = grpc.aio.ServicerContext[prefill_pb2.PrefillRequest, bytes]
RunCall = grpc.aio.UnaryStreamCall[prefill_pb2.PrefillRequest, bytes]


class PrefillServicer(Protocol):
    async def Run(self, request: prefill_pb2.PrefillRequest, context: RunContext) -> None:
        """Write one frame after another to `context`."""
        ...


def add_prefill_servicer(servicer: PrefillServicer, server: grpc.aio.Server) -> None:
    run = grpc.unary_stream_rpc_method_handler(
        servicer.Run,
        request_deserializer=prefill_pb2.PrefillRequest.FromString,
        response_serializer=None,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Run": run}),))


def run_prefill(channel: grpc.aio.Channel, request: prefill_pb2.PrefillRequest, request_id: str) -> RunCall:
    """Start the stream. The caller cancels the call or reads it to its end."""
    method = channel.unary_stream(
        f"/{SERVICE}/Run",
        request_serializer=prefill_pb2.PrefillRequest.SerializeToString,
        response_deserializer=None,
    )
    return method(request, metadata=grpc.aio.Metadata(("x-request-id", request_id)))
