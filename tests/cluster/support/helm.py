"""helm as a person would type it, on one cluster and in one namespace."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.support.kubectl import Client

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "kvarn"
Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Helm:
    client: Client
    namespace: str

    def __call__(self, *args: str, stdin: str = "", timeout_s: float = 400) -> str:
        return self.client.run("helm", "--namespace", self.namespace, *args, stdin=stdin, timeout_s=timeout_s)

    def install(self, release: str, values: Values, *args: str, chart: Path = CHART, timeout_s: int = 300) -> str:
        """Returns the notes, once everything is ready."""
        return self._change("install", release, values, args, chart, timeout_s)

    def upgrade(self, release: str, values: Values, *args: str, chart: Path = CHART, timeout_s: int = 300) -> str:
        return self._change("upgrade", release, values, args, chart, timeout_s)

    def rollback(self, release: str, revision: int, timeout_s: int = 300) -> None:
        self("rollback", release, str(revision), "--wait", f"--timeout={timeout_s}s")

    def test(self, release: str, timeout_s: int = 300) -> str:
        return self("test", release, f"--timeout={timeout_s}s")

    def uninstall(self, release: str, timeout_s: int = 300) -> None:
        self("uninstall", release, "--wait", f"--timeout={timeout_s}s")

    def _change(
        self, verb: str, release: str, values: Values, args: tuple[str, ...], chart: Path, timeout_s: int
    ) -> str:
        flags = ("--wait", f"--timeout={timeout_s}s", "--values", "-")
        return self(verb, release, str(chart), *flags, *args, stdin=json.dumps(values), timeout_s=timeout_s + 60)
