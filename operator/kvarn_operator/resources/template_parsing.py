"""`template` of a pool: what its pods are like. Called by `pool_parsing`; the escape hatch is `pod_template_checks`."""

import re
from collections.abc import Collection

from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.pod_contract import (
    ENGINE_FLAGS,
    GUARDED_PATHS,
    GUARDED_VOLUMES,
    OWN_FLAGS,
    OWN_VOLUMES,
    POD_NAME_VARIABLE,
)
from kvarn_operator.resources.pod_metadata import MAX_ENTRIES, read_annotations, read_labels
from kvarn_operator.resources.pod_template_checks import check_pod_template
from kvarn_operator.resources.pool_template import Image, Json, Placement, PodTemplate

PULL_POLICIES = ("", "Always", "IfNotPresent", "Never")
QUANTITY = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
FLAG = re.compile(r"[a-z][a-z0-9-]*")


def parse_template(fields: Fields) -> PodTemplate:
    template = PodTemplate(
        image=Image(fields.text("image"), fields.word("imagePullPolicy", "", PULL_POLICIES)),
        resources=_resources(fields),
        placement=_placement(fields),
        image_pull_secrets=tuple(secret.required_text("name") for secret in fields.sections("imagePullSecrets")),
        service_account_name=fields.text("serviceAccountName"),
        env=_named(fields, "env", frozenset({POD_NAME_VARIABLE})),
        volumes=_named(fields, "volumes", GUARDED_VOLUMES),
        volume_mounts=_mounts(fields),
        args=_args(fields),
        startup_timeout_s=float(fields.integer("startupTimeoutSeconds", 1800, 10, 86_400)),
        labels=read_labels(fields),
        annotations=read_annotations(fields),
        pod_template=fields.json("podTemplate"),
    )
    check_pod_template(fields.section("podTemplate"))
    return template


def _placement(fields: Fields) -> Placement:
    return Placement(
        node_selector=fields.text_map("nodeSelector"),
        tolerations=fields.json_list("tolerations"),
        affinity=fields.json("affinity"),
        topology_spread_constraints=fields.json_list("topologySpreadConstraints"),
        priority_class_name=fields.text("priorityClassName"),
        runtime_class_name=fields.text("runtimeClassName"),
        scheduler_name=fields.text("schedulerName"),
    )


def _resources(fields: Fields) -> Json:
    resources = fields.section("resources")
    for kind in ("limits", "requests"):
        for name, amount in resources.text_map(kind, numbers=True):
            if QUANTITY.fullmatch(amount) is None:
                raise resources.error(f"{kind}.{name}", f"{amount!r} is no amount such as 1, 500m or 16Gi")
    resources.json_list("claims")
    return fields.json("resources")


def _named(fields: Fields, key: str, taken: Collection[str]) -> tuple[Json, ...]:
    """Objects that differ in their names."""
    seen = set(taken)
    for item in fields.sections(key):
        name = item.required_text("name")
        if name in seen:
            raise item.error("name", f"{name!r} is used by the operator" if name in taken else f"{name!r} comes twice")
        seen.add(name)
    return fields.json_list(key)


def _mounts(fields: Fields) -> tuple[Json, ...]:
    extra = fields.section("podTemplate").section("spec")
    volumes = {item.values.get("name") for each in (fields, extra) for item in each.sections("volumes")}
    for mount in fields.sections("volumeMounts"):
        path, name = mount.required_text("mountPath", longest=1024), mount.required_text("name")
        if path.rstrip("/") in GUARDED_PATHS:
            raise mount.error("mountPath", f"{path} is used by the operator")
        if name not in volumes | OWN_VOLUMES:
            raise mount.error("name", f"{name!r} is none of template.volumes")
    return fields.json_list("volumeMounts")


def _args(fields: Fields) -> tuple[tuple[str, str], ...]:
    args = fields.text_map("args", numbers=True)
    if len(args) > MAX_ENTRIES:
        raise fields.error("args", f"has {len(args)} entries, at most {MAX_ENTRIES} are allowed")
    for flag, _ in args:
        if flag in OWN_FLAGS:
            raise fields.error(f"args.{flag}", "is set by the operator")
        if flag in ENGINE_FLAGS:
            raise fields.error(f"args.{flag}", "is set in spec.engine of the ModelService, for both pools alike")
        if FLAG.fullmatch(flag) is None:
            raise fields.error(f"args.{flag}", "is no flag; write it without dashes in front, such as max-waiting")
    return args
