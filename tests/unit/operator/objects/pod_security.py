"""The "restricted" level of the Pod Security Standards, as far as a pod's JSON tells."""

from collections.abc import Iterator, Mapping
from typing import Any

VOLUME_TYPES = frozenset({
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
})  # fmt: skip
SECCOMP_TYPES = ("RuntimeDefault", "Localhost")


def violations(pod: Mapping[str, Any]) -> list[str]:
    spec = pod["spec"]
    found = [f"{key} is set" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    for volume in spec.get("volumes", ()):
        found += [f"volume {volume['name']}: {key}" for key in volume if key not in VOLUME_TYPES | {"name"}]
    found += [f"unsafe sysctl {each['name']}" for each in spec.get("securityContext", {}).get("sysctls", ())]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        context = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
        found += [f"{container['name']}: {each}" for each in _of_container(container, context)]
    return found


def _of_container(container: Mapping[str, Any], context: Mapping[str, Any]) -> Iterator[str]:
    """`context` is the container's over the pod's."""
    capabilities = context.get("capabilities", {})
    if context.get("runAsNonRoot") is not True:
        yield "may run as root"
    if context.get("runAsUser") == 0:
        yield "runs as root"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if context.get("privileged"):
        yield "is privileged"
    if "ALL" not in capabilities.get("drop", ()):
        yield "keeps capabilities"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "adds capabilities"
    if context.get("seccompProfile", {}).get("type") not in SECCOMP_TYPES:
        yield "has no seccomp profile"
    if context.get("procMount", "Default") != "Default":
        yield "sees all of /proc"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "takes a port of the node"
