"""Free ports and taken ones."""

import socket

from kvarn_cli.ports import free_ports, is_free


def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(20))) == 20


def test_a_listening_port_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not is_free("127.0.0.1", server.getsockname()[1])
    assert is_free("127.0.0.1", free_ports(1)[0])
