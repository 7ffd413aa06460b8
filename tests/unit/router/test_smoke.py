"""The completion of `helm test`: it passes when KV was handed over, and says what is wrong when it was not."""

from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import pytest
from kvarn_router.smoke import HANDOFF_BYTES, Check, SmokeFailure, SmokeSettings, main

WORKERS = [
    {"worker_id": "p", "incarnation": "p1", "role": "prefill", "address": "10.0.0.1:7000"},
    {"worker_id": "d", "incarnation": "d1", "role": "decode", "address": "[fd00::2]:7000"},
]


@dataclass
class FakeStack:
    """A router and two workers behind one transport. Every completion hands KV over, unless it is told otherwise."""

    ready_after: int = 0
    answer: int = 200
    tokens: int = 5
    handed_over: float = 4096.0
    metrics_status: int = 200
    bytes_so_far: float = 100.0
    at_zero: int = 0
    """So many completions are refused, and no worker is there before."""
    requests: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.path
        if path == "/metrics":
            text = f"# TYPE kvarn_handoff_bytes counter\n{HANDOFF_BYTES} {self.bytes_so_far}\n"
            return httpx.Response(self.metrics_status, text=text)
        if path == "/ready":
            self.ready_after -= 1
            return httpx.Response(503 if self.ready_after >= 0 else 200)
        if path == "/v1/completions" and self.at_zero:
            self.at_zero -= 1
            return httpx.Response(503)
        if path == "/v1/completions":
            self.bytes_so_far += self.handed_over
            usage = {"prompt_tokens": 300, "completion_tokens": self.tokens}
            return httpx.Response(self.answer, json={"usage": usage, "error": "why"})
        pages = {"/v1/models": {"data": [{"id": "m"}]}, "/debug/workers": {"workers": [] if self.at_zero else WORKERS}}
        return httpx.Response(200, json=pages[path])

    def check(self, model: str = "") -> Check:
        client = httpx.Client(transport=httpx.MockTransport(self), base_url="http://router")
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        return Check(SmokeSettings(model=model, timeout_s=10.0), client, lambda: now[0], sleep)

    def asked(self, path: str) -> list[str]:
        return [str(request.url) for request in self.requests if request.url.path == path]


def test_passes_when_kv_was_handed_over() -> None:
    stack = FakeStack(ready_after=3)
    assert stack.check().run() == (
        "m: 300 prompt tokens, 5 answered; 4096 KV bytes sent by prefill, 4096 received by decode workers"
    )
    assert len(stack.asked("/ready")) == 4
    assert set(stack.asked("/metrics")) == {"http://10.0.0.1:7001/metrics", "http://[fd00::2]:7001/metrics"}


def test_waits_for_a_model_that_has_scaled_to_zero() -> None:
    stack = FakeStack(at_zero=3, bytes_so_far=0.0)
    assert "4096 KV bytes sent by prefill, 4096 received" in stack.check().run()
    assert len(stack.asked("/v1/completions")) == 4


def test_a_worker_that_started_in_between_counts_from_zero() -> None:
    before: list[httpx.Request] = []

    class Restarted(FakeStack):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            if request.url.path == "/debug/workers":
                before.append(request)
                workers = [{**worker, "incarnation": f"{worker['incarnation']}-{len(before)}"} for worker in WORKERS]
                return httpx.Response(200, json={"workers": workers})
            return super().__call__(request)

    stack = Restarted(bytes_so_far=0.0, handed_over=8.0)
    assert "8 KV bytes sent by prefill, 8 received" in stack.check().run()


def test_prompts_differ_from_the_first_character_on() -> None:
    """Else a prefix cache might answer, and nothing would be handed over."""
    stack = FakeStack()
    for _ in range(2):
        stack.check("m").run()
    first, second = (request.read() for request in stack.requests if request.url.path == "/v1/completions")
    assert first != second
    assert len(first.split()) > 40


def assert_fails(stack: FakeStack, message: str) -> None:
    with pytest.raises(SmokeFailure, match=message):
        stack.check().run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: FakeStack(handed_over=0), "no prefill worker handed KV over"),
        (lambda: FakeStack(answer=503), "/v1/completions answers 503"),
        (lambda: FakeStack(tokens=0), "holds no token"),
        (lambda: FakeStack(ready_after=1000), "not ready: /ready answers 503"),
        (lambda: FakeStack(metrics_status=500), "metrics of worker p cannot be read"),
    ],
    ids=["local prefill", "refused", "empty", "never ready", "no metrics"],
)
def test_says_what_is_wrong(change: Callable[[], FakeStack], message: str) -> None:
    assert_fails(change(), message)


def test_router_that_is_not_there_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url=http://127.0.0.1:9", "--timeout-s=0.1"], {}) == 1
    assert "not ready: ConnectError" in capsys.readouterr().err
