"""One ModelService of a cluster under test: how a person makes it, scales it and looks at it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvarn_operator.resources.labels import API_VERSION, POOL_LABEL
from kvarn_operator.resources.names import label_value, pool_name
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.kubectl import Kubectl, Resource

NO_WORK = {"timeoutSeconds": 0}
"""Drain of pods that never have any: fake ones tell no readings, and would be waited for."""

BOTH = (Role.PREFILL, Role.DECODE)


def model_service(
    name: str, prefill: Mapping[str, object] | None = None, decode: Mapping[str, object] | None = None, **spec: object
) -> Resource:
    pools = {"prefill": {"drain": NO_WORK, **(prefill or {})}, "decode": {"drain": NO_WORK, **(decode or {})}}
    return {"apiVersion": API_VERSION, "kind": "ModelService", "metadata": {"name": name}, "spec": {**pools, **spec}}


def gpu_template(gpus: int = 1) -> Mapping[str, object]:
    return {"resources": {"limits": {"nvidia.com/gpu": gpus}}}


@dataclass(frozen=True, slots=True)
class Model:
    kubectl: Kubectl
    name: str

    def apply(
        self,
        prefill: Mapping[str, object] | None = None,
        decode: Mapping[str, object] | None = None,
        **spec: object,
    ) -> None:
        self.kubectl.apply(model_service(self.name, prefill, decode, **spec))

    def pool(self, role: Role) -> Resource:
        """With managedFields, which kubectl leaves out unless asked."""
        found = self.kubectl("get", "wp", pool_name(self.name, role), "--show-managed-fields", "-o", "json")
        return dict(json.loads(found))

    def condition(self, kind: str) -> Mapping[str, str]:
        found = self.kubectl.get("ms", self.name)
        assert found is not None
        return next(each for each in found["status"]["conditions"] if each["type"] == kind)

    def pods(self, *roles: Role) -> Sequence[Resource]:
        """Those that are not on their way out."""
        pools = ",".join(label_value(pool_name(self.name, role)) for role in roles or BOTH)
        found = self.kubectl.list("pods", f"{POOL_LABEL} in ({pools})")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def scale(self, role: Role, replicas: int) -> None:
        self.kubectl("scale", f"wp/{pool_name(self.name, role)}", f"--replicas={replicas}")

    def wait_ready(self, deadline_s: int = 120) -> None:
        self.wait_for("Ready", "True", deadline_s)

    def wait_for(self, condition: str, value: str, deadline_s: int = 120) -> None:
        """Of the generation that is there now."""
        self._wait(f"ms/{self.name}", f"condition={condition}={value}", deadline_s)

    def wait_for_status(self, role: Role, field: str, value: object, deadline_s: int = 120) -> None:
        self._wait(f"wp/{pool_name(self.name, role)}", f"jsonpath={{.status.{field}}}={value}", deadline_s)

    def wait_for_pods(self, role: Role, ready: int, deadline_s: int = 120) -> None:
        """So many, all ready, and none that drains."""
        for field, value in (("replicas", ready), ("readyReplicas", ready), ("drainingReplicas", 0)):
            self.wait_for_status(role, field, value, deadline_s)

    def _wait(self, what: str, goal: str, deadline_s: int) -> None:
        self.kubectl("wait", what, f"--for={goal}", f"--timeout={deadline_s}s", timeout_s=deadline_s + 60)


def names(resources: Sequence[Resource]) -> list[str]:
    return sorted(resource["metadata"]["name"] for resource in resources)
