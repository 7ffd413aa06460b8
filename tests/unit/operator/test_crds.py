"""The hook that brings CRDs up to date: what is written, what is waited for, and what a refusal looks like."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kvarn_operator.cluster.errors import Conflict, NotFound, Refused, Unavailable
from kvarn_operator.cluster.transport import Call
from kvarn_operator.crds import NotEstablished, Patience, apply, main, read_definitions, wait_established

NAME = "things.example.com"
COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CHART_CRDS = Path(__file__).parents[3] / "deploy" / "helm" / "kvarn" / "crds"


def definition(**spec: Any) -> dict[str, Any]:
    return {"kind": "CustomResourceDefinition", "metadata": {"name": NAME, "labels": {"ours": "1"}}, "spec": spec}


class Clock:
    """Time passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def patience(self, timeout_s: float = 5.0) -> Patience:
        return Patience(timeout_s, lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


class Server:
    """Answers by script: for each method, what the calls get one after the other; the last answer is repeated."""

    def __init__(self, **answers: list[Any]) -> None:
        self._answers = answers
        self.calls: list[Call] = []

    def send(self, call: Call) -> Any:
        self.calls.append(call)
        queue = self._answers[call.method]
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def written(self) -> list[Call]:
        return [call for call in self.calls if call.method != "GET"]


def live(**spec: Any) -> dict[str, Any]:
    return {**definition(**spec), "metadata": {"name": NAME, "resourceVersion": "7", "annotations": {"theirs": "2"}}}


def test_missing_definition_is_created() -> None:
    server = Server(GET=[NotFound("no")], POST=[{}])
    apply(server, definition(a=1), Clock().patience())
    (call,) = server.written()
    assert (call.method, call.path, call.body) == ("POST", COLLECTION, definition(a=1))


def test_older_definition_is_replaced_as_a_whole() -> None:
    """What the newer one no longer has goes; what others wrote into the metadata stays."""
    server = Server(GET=[live(a=1, gone=2)], PUT=[{}])
    apply(server, definition(a=3), Clock().patience())
    (call,) = server.written()
    assert call.path == f"{COLLECTION}/{NAME}"
    assert call.body["spec"] == {"a": 3}
    assert call.body["metadata"] == {
        "name": NAME, "resourceVersion": "7", "annotations": {"theirs": "2"}, "labels": {"ours": "1"},
    }  # fmt: skip


@pytest.mark.parametrize("error", [Conflict("written in between"), Unavailable("starting")])
def test_passing_failures_are_tried_again_from_the_start(error: Exception) -> None:
    server = Server(GET=[live(a=1)], PUT=[error, {}])
    apply(server, definition(a=3), Clock().patience())
    assert [call.method for call in server.calls] == ["GET", "PUT", "GET", "PUT"]


def test_server_that_stays_away_ends_the_tries() -> None:
    clock = Clock()
    with pytest.raises(Unavailable):
        apply(Server(GET=[Unavailable("away")]), definition(), clock.patience(3.0))
    assert clock.now == 3.0


def test_refusal_is_not_tried_again() -> None:
    server = Server(GET=[live()], PUT=[Refused("invalid")])
    with pytest.raises(Refused):
        apply(server, definition(a=1), Clock().patience())
    assert len(server.written()) == 1


def conditions(established: str, message: str = "") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Established", "status": established, "message": message}]}}


def test_waits_until_the_definition_is_served() -> None:
    server = Server(GET=[{}, conditions("False"), conditions("True")])
    wait_established(server, NAME, Clock().patience())
    assert len(server.calls) == 3


def test_tells_why_a_definition_is_not_served() -> None:
    with pytest.raises(NotEstablished, match=f"{NAME} is not served: the name is taken"):
        wait_established(Server(GET=[conditions("False", "the name is taken")]), NAME, Clock().patience(2.0))


def test_reads_the_definitions_of_the_chart() -> None:
    found = [body["metadata"]["name"] for body in read_definitions(CHART_CRDS)]
    assert found == ["modelservices.kvarn.dev", "workerpools.kvarn.dev"]


def write_nothing(folder: Path) -> None:
    """An empty folder."""


def write_other(folder: Path) -> None:
    (folder / "a.yaml").write_text("kind: Secret\n", encoding="utf-8")


def write_broken(folder: Path) -> None:
    (folder / "a.yaml").write_text("kind: [\n", encoding="utf-8")


@pytest.mark.parametrize("write", [write_nothing, write_other, write_broken])
def test_anything_else_ends_with_status_2(
    write: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    assert main(["apply", "--from", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("crds: ")
