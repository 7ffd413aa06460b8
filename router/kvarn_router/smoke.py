"""`python -m kvarn_router.smoke --url URL`: one real completion through a router, and proof of its hand-off.

Run by `helm test`, as a client of the Service. The proof is the workers' own: bytes sent by prefill and received by
decode workers, before and after. It needs nothing of the router but its public pages, and runs in a pod of its own.
"""

import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
from kvarn_engine.process.settings import load_settings_or_exit
from prometheus_client.parser import text_string_to_metric_families

HANDOFF_BYTES = "kvarn_handoff_bytes_total"
_PAUSE_S = 0.5
_PROMPT_WORDS = 40
"""Well above the length that a decode worker prefills by itself (`--local-prefill-max-tokens`)."""


@dataclass(frozen=True, slots=True)
class SmokeSettings:
    url: str = "http://127.0.0.1:8080"
    """Address of the router."""

    model: str = ""
    """Name to ask for. Empty: the first that the router lists."""

    api_keys: tuple[str, ...] = ()
    """The router's keys; the first one is used."""

    worker_metrics_port: int = 7001
    """Where the workers show their metrics."""

    timeout_s: float = 120.0
    """For getting ready, and again for the answer."""


@dataclass(frozen=True, slots=True)
class Settings:
    smoke: SmokeSettings = field(default_factory=SmokeSettings)


@dataclass(frozen=True, slots=True)
class HandedOver:
    """KV bytes so far, by incarnation: a worker that started in between began at zero."""

    sent: Mapping[str, float]
    received: Mapping[str, float]

    def since(self, before: "HandedOver") -> tuple[float, float]:
        """Sent and received."""
        return _growth(before.sent, self.sent), _growth(before.received, self.received)


def _growth(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    return sum(count - before.get(incarnation, 0.0) for incarnation, count in after.items())


class SmokeFailure(Exception):
    """The message tells a person what is wrong."""


@dataclass(frozen=True, slots=True)
class Check:
    settings: SmokeSettings
    client: httpx.Client
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def run(self) -> str:
        """A line about what was seen. Raises SmokeFailure."""
        self._wait_ready()
        model = self.settings.model or self._get("/v1/models")["data"][0]["id"]
        before = self._handed_over()
        answer = self._complete(model)
        sent, received = self._moved(before)
        usage = answer["usage"]
        return (
            f"{model}: {usage['prompt_tokens']} prompt tokens, {usage['completion_tokens']} answered; "
            f"{sent:.0f} KV bytes sent by prefill, {received:.0f} received by decode workers"
        )

    def _wait_ready(self) -> None:
        deadline = self.clock() + self.settings.timeout_s
        while True:
            try:
                reason = f"/ready answers {self.client.get('/ready').status_code}"
                if reason.endswith(" 200"):
                    return
            except httpx.HTTPError as error:
                reason = f"{type(error).__name__}: {error}"
            if self.clock() >= deadline:
                raise SmokeFailure(f"{self.settings.url} is not ready: {reason}")
            self.sleep(_PAUSE_S)

    def _get(self, path: str) -> dict[str, list[dict[str, str]]]:
        response = self.client.get(path)
        if response.status_code != httpx.codes.OK:
            raise SmokeFailure(f"{path} answers {response.status_code}")
        found: dict[str, list[dict[str, str]]] = response.json()
        return found

    def _complete(self, model: str) -> dict[str, dict[str, int]]:
        """A model that has scaled to zero is asked again until its workers are there."""
        body = {"model": model, "prompt": unique_prompt(uuid.uuid4()), "max_tokens": 16, "temperature": 0}
        deadline = self.clock() + self.settings.timeout_s
        while True:
            response = self.client.post("/v1/completions", json=body)
            if response.status_code != httpx.codes.SERVICE_UNAVAILABLE or self.clock() >= deadline:
                break
            self.sleep(_PAUSE_S)
        if response.status_code != httpx.codes.OK:
            raise SmokeFailure(f"/v1/completions answers {response.status_code}: {response.text[:500]}")
        answer: dict[str, dict[str, int]] = response.json()
        if answer["usage"]["completion_tokens"] < 1:
            raise SmokeFailure("the answer holds no token")
        return answer

    def _moved(self, before: HandedOver) -> tuple[float, float]:
        """Workers count a hand-off when its stream is over, which is a moment after the answer."""
        deadline = self.clock() + min(15.0, self.settings.timeout_s)
        while True:
            sent, received = self._handed_over().since(before)
            if sent > 0 and received > 0:
                return sent, received
            if self.clock() >= deadline:
                raise SmokeFailure("the request was answered, but no prefill worker handed KV over to a decode worker")
            self.sleep(_PAUSE_S)

    def _handed_over(self) -> HandedOver:
        workers = self._get("/debug/workers")["workers"]
        return HandedOver(self._bytes_by_incarnation(workers, "prefill"), self._bytes_by_incarnation(workers, "decode"))

    def _bytes_by_incarnation(self, workers: Sequence[Mapping[str, str]], role: str) -> dict[str, float]:
        return {worker["incarnation"]: self._bytes_of(worker) for worker in workers if worker["role"] == role}

    def _bytes_of(self, worker: Mapping[str, str]) -> float:
        host = urlsplit(f"//{worker['address']}").hostname or ""
        address = f"http://{f'[{host}]' if ':' in host else host}:{self.settings.worker_metrics_port}/metrics"
        try:
            page = self.client.get(address).raise_for_status().text
        except httpx.HTTPError as error:
            raise SmokeFailure(f"metrics of worker {worker['worker_id']} cannot be read: {error}") from error
        samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == HANDOFF_BYTES)


def unique_prompt(identity: uuid.UUID) -> str:
    """Differs from the first token on, so that no worker has any of it cached."""
    words = (f"{identity.hex[(3 * number) % 28 :][:4]}-{number}" for number in range(_PROMPT_WORDS))
    return f"{identity}: " + " ".join(words)


def main(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    settings = load_settings_or_exit(Settings, argv, environment).smoke
    headers = {"Authorization": f"Bearer {settings.api_keys[0]}"} if settings.api_keys else {}
    with httpx.Client(base_url=settings.url, headers=headers, timeout=settings.timeout_s, trust_env=False) as client:
        try:
            print(Check(settings, client).run())
        except SmokeFailure as error:
            print(f"smoke: {error}", file=sys.stderr)
            return 1
        except httpx.HTTPError as error:
            print(f"smoke: {settings.url}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
