"""The worker container of a pod. Used by the pod's builder."""

from collections.abc import Iterable, Mapping
from typing import Any

from kvarn_operator.objects.arguments import command, worker_arguments
from kvarn_operator.objects.compute import container_resources
from kvarn_operator.objects.model_source import model_environment
from kvarn_operator.objects.probes import worker_probes
from kvarn_operator.objects.volumes import CACHE_PATH, TMP_PATH, MountedVolume
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.labels import GRPC_PORT, GRPC_PORT_NAME, METRICS_PORT, METRICS_PORT_NAME
from kvarn_operator.resources.model_service import ModelServiceSpec
from kvarn_operator.resources.pod_contract import POD_NAME_VARIABLE, WORKER_CONTAINER
from kvarn_operator.resources.pool_template import Json, Pool
from kvarn_operator.scaling.spec import Role


def worker_container(
    spec: ModelServiceSpec, role: Role, pool: Pool, volumes: Iterable[MountedVolume], defaults: OperatorDefaults
) -> Mapping[str, Any]:
    template = pool.template
    return {
        "name": WORKER_CONTAINER,
        "image": template.image.reference or defaults.worker_image,
        "imagePullPolicy": template.image.pull_policy or defaults.image_pull_policy,
        "command": command(role),
        "args": worker_arguments(spec, pool, defaults),
        "env": _environment(spec, template.env),
        "ports": worker_ports(),
        "resources": container_resources(template.resources, spec.model, spec.engine),
        "volumeMounts": _mounts(volumes, template.volume_mounts),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        },
        **worker_probes(template.startup_timeout_s),
    }


def worker_ports() -> list[Mapping[str, Any]]:
    return [
        {"name": GRPC_PORT_NAME, "containerPort": GRPC_PORT, "protocol": "TCP"},
        {"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT, "protocol": "TCP"},
    ]


def pod_name_variable() -> Mapping[str, Any]:
    return {"name": POD_NAME_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def _environment(spec: ModelServiceSpec, given: Iterable[Json]) -> list[Mapping[str, Any]]:
    """The user's variables win, save the pod's name, which the arguments need. Each name once."""
    ours = (
        {"name": "HOME", "value": TMP_PATH},
        {"name": "KVARN_CACHE", "value": CACHE_PATH},
        {"name": "HF_HOME", "value": f"{CACHE_PATH}/hf"},
        {"name": "OMP_NUM_THREADS", "value": str(spec.engine.threads or 1)},
        *model_environment(spec.model),
    )
    by_name = {each["name"]: each for each in (*ours, *given)}
    by_name.pop(POD_NAME_VARIABLE, None)
    return [pod_name_variable(), *by_name.values()]


def _mounts(volumes: Iterable[MountedVolume], given: Iterable[Json]) -> list[Mapping[str, Any]]:
    """The user's mount at one of our paths takes its place."""
    by_path = {each["mountPath"]: each for each in (*(volume.mount for volume in volumes), *given)}
    return list(by_path.values())
