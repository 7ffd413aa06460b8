"""A small HTTP or HTTPS server of files in memory, for whatever downloads models."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kvarn_engine.wire.tls import TlsSettings


@dataclass
class FileServer:
    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    cut_short: set[str] = field(default_factory=set)
    """Paths whose connection ends in the middle."""

    without_length: set[str] = field(default_factory=set)
    """Paths whose answer ends with the connection."""

    held: set[str] = field(default_factory=set)
    """Paths that are asked for and never answered, until the server ends."""

    requests: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def file_server(tls: TlsSettings | None = None) -> Iterator[FileServer]:
    """With TLS, the certificate must carry the name `localhost`."""
    state = FileServer("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            state.requests.append(self.path)
            if path in state.held:
                state.ended.wait()
            elif path in state.redirects:
                self._answer(302, b"", state.redirects[path])
            elif path in state.files:
                self._answer(200, state.files[path])
            else:
                self._answer(404, b"")

        def _answer(self, status: int, body: bytes, location: str = "") -> None:
            self.send_response(status)
            if self.path not in state.without_length:
                self.send_header("Content-Length", str(len(body)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if self.path in state.cut_short else body)

        def log_message(self, format: str, *args: object) -> None:
            """Not on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.tls_cert_file, tls.tls_key_file)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    state.url = f"{'http' if tls is None else 'https'}://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="file-server")
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
