"""kubectl as a person would type it, on one cluster and in one namespace."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.process import wait_until

Resource = Mapping[str, Any]

LOOK_S = 1.0
"""Between two looks that start a kubectl each: they take the processor from what they wait for."""


@dataclass(frozen=True, slots=True)
class Client:
    """How kubectl, helm and other programs reach one cluster."""

    kubeconfig: Path
    programs: Path | None = None
    """Folder of kubectl and helm; None: as PATH has them."""

    def environment(self) -> dict[str, str]:
        path = os.environ.get("PATH", "")
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self.programs}:{path}" if self.programs else path,
            **({"KUBECACHEDIR": str(self.kubeconfig.parent / "cache")} if self.programs else {}),
        }

    def run(self, *command: str, stdin: str = "", timeout_s: float = 300) -> str:
        """What it printed; a failure fails the test with what it said."""
        done = self.attempt(*command, stdin=stdin, timeout_s=timeout_s)
        assert done.returncode == 0, f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def attempt(self, *command: str, stdin: str = "", timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment(), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )


@dataclass(frozen=True, slots=True)
class Kubectl:
    client: Client
    namespace: str = "default"

    def at(self, namespace: str) -> "Kubectl":
        return replace(self, namespace=namespace)

    def __call__(self, *args: str, stdin: str = "", timeout_s: float = 300) -> str:
        return self.client.run("kubectl", "--namespace", self.namespace, *args, stdin=stdin, timeout_s=timeout_s)

    def attempt(self, *args: str, stdin: str = "", timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        command = ("kubectl", "--namespace", self.namespace, *args)
        return self.client.attempt(*command, stdin=stdin, timeout_s=timeout_s)

    def apply(self, *resources: Resource) -> None:
        """Validation by the server alone: old ones do not know CEL rules."""
        bundle = {"apiVersion": "v1", "kind": "List", "items": list(resources)}
        self("apply", "--validate=false", "-f", "-", stdin=json.dumps(bundle))

    def get(self, kind: str, name: str) -> Resource | None:
        """None where there is none."""
        found = self("get", kind, name, "--ignore-not-found", "-o", "json")
        return dict(json.loads(found)) if found.strip() else None

    def list(self, kind: str, selector: str = "") -> Sequence[Resource]:
        labels = ("-l", selector) if selector else ()
        return list(json.loads(self("get", kind, *labels, "-o", "json"))["items"])

    def logs(self, pod: str, *args: str) -> str:
        return self("logs", pod, *args)

    def wait_until_gone(self, kind: str, selector: str = "", deadline_s: float = 120) -> None:
        """Real nodes take some seconds longer than the containers."""
        wait_until(
            lambda: not self.list(kind, selector), f"{kind} {selector} gone from {self.namespace}", deadline_s, LOOK_S
        )

    def describe_all(self) -> str:
        """For the message of a failing test: pods, events and the end of every log."""
        parts = [
            self.attempt("get", "pods,ms,wp", "-o", "wide").stdout,
            self.attempt("get", "events", "--sort-by=.lastTimestamp").stdout,
        ]
        for pod in self.list("pods"):
            name = pod["metadata"]["name"]
            parts.append(f"---- {name}\n{self.attempt('logs', name, '--all-containers', '--tail=30').stdout}")
        return "\n".join(parts)
