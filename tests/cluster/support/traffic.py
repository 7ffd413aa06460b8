"""A steady stream of short requests, to see whether a change of the cluster is noticed by anybody."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

PAUSE_S = 0.5
"""Between two requests: the cluster needs the processor too."""

TIMEOUT = httpx.Timeout(120.0, connect=10.0)


class Traffic:
    """Counts whole answers and keeps what went wrong. Owned by the thread that sends."""

    def __init__(self, url: str, body: Mapping[str, object], headers: Mapping[str, str]) -> None:
        self.answers: list[str] = []
        self.failures: list[str] = []
        self._url = url
        self._body = body
        self._headers = dict(headers)
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def send(self) -> None:
        """One request after the other, each on a connection of its own, as many clients would."""
        while not self._over.wait(PAUSE_S):
            try:
                response = httpx.post(
                    f"{self._url}/v1/completions", json=self._body, headers=self._headers, timeout=TIMEOUT
                )
            except httpx.TransportError as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                continue
            if response.status_code == 200:
                self.answers.append(response.json()["choices"][0]["text"])
            else:
                self.failures.append(f"{response.status_code}: {response.text}")


@contextmanager
def steady_traffic(url: str, body: Mapping[str, object], headers: Mapping[str, str]) -> Iterator[Traffic]:
    """One request at a time until the block ends; the last one is waited for."""
    traffic = Traffic(url, body, headers)
    sender = threading.Thread(target=traffic.send, name="traffic", daemon=True)
    sender.start()
    try:
        yield traffic
    finally:
        traffic.stop()
        sender.join(timeout=TIMEOUT.read)
