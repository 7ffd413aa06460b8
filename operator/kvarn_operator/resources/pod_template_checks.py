"""What `podTemplate`, merged over the built pod, may not touch. Called by `template_parsing`.

Each refusal names the field that does what the user is after, where there is one.
"""

from collections.abc import Mapping

from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.labels import GRPC_PORT, GRPC_PORT_NAME, METRICS_PORT, METRICS_PORT_NAME
from kvarn_operator.resources.pod_contract import GUARDED_PATHS, GUARDED_VOLUMES, POD_NAME_VARIABLE, WORKER_CONTAINER
from kvarn_operator.resources.pod_metadata import read_annotations, read_labels

REFUSED_IN_SPEC: Mapping[str, str] = {
    "restartPolicy": "is always Always",
    "terminationGracePeriodSeconds": "follows from drain.timeoutSeconds",
    "enableServiceLinks": "is always false: variables of services would be taken for settings",
    "hostname": "is the pod's name",
    "ephemeralContainers": "belong to kubectl debug",
}
REFUSED_IN_WORKER: Mapping[str, str] = {
    "command": "is the operator's; flags go into template.args",
    "args": "are the operator's; flags go into template.args",
    "image": "goes into template.image",
    "imagePullPolicy": "goes into template.imagePullPolicy",
    "resources": "go into template.resources, where the operator counts GPUs",
    "readinessProbe": "is the operator's: drain and rollout go by it",
}
OWN_PORTS = (GRPC_PORT_NAME, METRICS_PORT_NAME, GRPC_PORT, METRICS_PORT)


def check_pod_template(fields: Fields) -> None:
    _refuse_others(fields, ("metadata", "spec"), "a podTemplate has metadata and spec")
    metadata = fields.section("metadata")
    _refuse_others(metadata, ("labels", "annotations"), "only labels and annotations may be given")
    read_labels(metadata)
    read_annotations(metadata)
    spec = fields.section("spec")
    _refuse(spec, REFUSED_IN_SPEC)
    for volume in spec.sections("volumes"):
        if volume.required_text("name") in GUARDED_VOLUMES:
            raise volume.error("name", f"{volume.text('name')!r} is used by the operator")
    for container in (*spec.sections("containers"), *spec.sections("initContainers")):
        if container.required_text("name") == WORKER_CONTAINER:
            _check_worker(container)


def _check_worker(container: Fields) -> None:
    _refuse(container, REFUSED_IN_WORKER)
    for port in container.sections("ports"):
        if port.values.get("name") in OWN_PORTS or port.values.get("containerPort") in OWN_PORTS:
            raise port.error("", f"the ports {GRPC_PORT_NAME} and {METRICS_PORT_NAME} are the operator's")
    for variable in container.sections("env"):
        if variable.required_text("name") == POD_NAME_VARIABLE:
            raise variable.error("name", f"{POD_NAME_VARIABLE!r} is used by the operator")
    for mount in container.sections("volumeMounts"):
        if mount.required_text("mountPath", longest=1024).rstrip("/") in GUARDED_PATHS:
            raise mount.error("mountPath", f"{mount.text('mountPath')} is used by the operator")


def _refuse(fields: Fields, refused: Mapping[str, str]) -> None:
    for key, reason in refused.items():
        if key in fields.values:
            raise fields.error(key, reason)


def _refuse_others(fields: Fields, allowed: tuple[str, ...], reason: str) -> None:
    for key in fields.values:
        if key not in allowed:
            raise fields.error(key, reason)
