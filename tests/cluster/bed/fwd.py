"""Carry TCP connections into a network namespace.

    fwd.py LISTEN_HOST:PORT TARGET_HOST:PORT NAMESPACE_FILE

Listens in the namespace it is started in and connects from inside NAMESPACE_FILE (such as /proc/PID/ns/net), so a
client on the machine's loopback reaches a server that exists only in there. up.sh uses it for the API server; it serves
any Service as well: fwd.py 127.0.0.1:8000 10.96.1.2:80 /proc/$(cat $KVARN_BED_RUN/node.pid)/ns/net
"""

import contextlib
import ctypes
import os
import socket
import sys
import threading

CLONE_NEWNET = 0x40000000


def address(text: str) -> tuple[str, int]:
    host, port = text.rsplit(":", 1)
    return host, int(port)


def enter_network(namespace_file: str) -> None:
    """Move this thread, and every thread it starts later, into the namespace. Sockets already open stay outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(namespace_file, os.O_RDONLY)
    if libc.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns", namespace_file)
    os.close(fd)


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until `source` ends, then pass the end on, so that half-closed connections stay half-open."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def serve(client: socket.socket, target: tuple[str, int]) -> None:
    with client:
        try:
            server = socket.create_connection(target)
        except OSError:
            return
        with server:
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            pump(client, server)
            back.join()


def main() -> None:
    listener = socket.create_server(address(sys.argv[1]), backlog=128)
    target = address(sys.argv[2])
    enter_network(sys.argv[3])
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, target), daemon=True).start()


if __name__ == "__main__":
    main()
