"""gRPC options of every channel and server, in one place, so that both ends of a hop agree.

Called by whoever opens a channel (router, decode worker) and by the worker's server assembly. With TLS files, both ends
show a certificate and check the other's; without, a hop is neither encrypted nor authenticated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import grpc.aio

from kvarn_engine.wire.tls import TlsFiles

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Well above a frame or a long prompt; a bound against a broken peer, not a budget."""


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    keepalive_time_s: float = 10.0
    """A connection silent for this long is pinged."""

    keepalive_timeout_s: float = 5.0
    """An unanswered ping breaks the connection after this long: a frozen machine looks like a dead one."""

    max_reconnect_backoff_s: float = 2.0
    """A restarted worker is found again within this time."""


Options = Sequence[tuple[str, int | str]]


def channel_options(settings: ChannelSettings) -> Options:
    return (
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", round(settings.keepalive_time_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(settings.keepalive_timeout_s * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", round(settings.max_reconnect_backoff_s * 1000)),
        # Channels of one process must not share a connection: one stream's flow control would slow another peer's.
        ("grpc.use_local_subchannel_pool", 1),
    )


def server_options(settings: ChannelSettings) -> Options:
    return (
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", round(settings.keepalive_time_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(settings.keepalive_timeout_s * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
        # Clients ping every `keepalive_time_s`; the server must not take that for abuse.
        ("grpc.http2.min_ping_interval_without_data_ms", round(settings.keepalive_time_s * 500)),
        ("grpc.keepalive_permit_without_calls", 0),
        # Two processes on one port would split the traffic in silence.
        ("grpc.so_reuseport", 0),
    )


def open_channel(
    address: str, settings: ChannelSettings | None = None, tls: TlsFiles | None = None
) -> grpc.aio.Channel:
    """A channel to `host:port`. The caller owns and closes it; connecting is lazy."""
    options = channel_options(settings or ChannelSettings())
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    named = (*options, ("grpc.ssl_target_name_override", tls.server_name))
    return grpc.aio.secure_channel(address, tls.channel_credentials(), options=named)


def listen(server: grpc.aio.Server, address: str, tls: TlsFiles | None = None) -> int:
    """Add `host:port` to a server that has not started; the port, chosen by the system where it is 0."""
    if tls is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, tls.server_credentials())
