"""What a user said of a pool, as the fields of a WorkerPool again; the parser's counterpart. Used by its builder.

What is empty is left out, so that the applied object owns no more than it says. Seconds and percents are whole numbers
in the CRD.
"""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.pool_template import Placement, PodTemplate, Scaling
from kvarn_operator.scaling.spec import RateLimit


def scaling_fields(scaling: Scaling) -> Mapping[str, Any]:
    behaviour = scaling.behaviour
    return {
        "mode": scaling.mode.value,
        "min": scaling.minimum,
        "max": scaling.maximum,
        "behaviour": {
            "scaleUp": _pace_fields(behaviour.up_window_s, behaviour.up_limit),
            "scaleDown": _pace_fields(behaviour.down_window_s, behaviour.down_limit),
        },
        "overrideSeconds": round(scaling.override_s),
        "zeroAfterSeconds": round(scaling.zero_after_s),
    }


def template_fields(template: PodTemplate) -> Mapping[str, Any]:
    values = {
        "image": template.image.reference,
        "imagePullPolicy": template.image.pull_policy,
        "resources": template.resources,
        **_placement_fields(template.placement),
        "imagePullSecrets": [{"name": name} for name in template.image_pull_secrets],
        "serviceAccountName": template.service_account_name,
        "env": list(template.env),
        "volumes": list(template.volumes),
        "volumeMounts": list(template.volume_mounts),
        "args": dict(template.args),
        "startupTimeoutSeconds": round(template.startup_timeout_s),
        "labels": dict(template.labels),
        "annotations": dict(template.annotations),
        "podTemplate": template.pod_template,
    }
    return {name: value for name, value in values.items() if value}


def _placement_fields(placement: Placement) -> Mapping[str, Any]:
    return {
        "nodeSelector": dict(placement.node_selector),
        "tolerations": list(placement.tolerations),
        "affinity": placement.affinity,
        "topologySpreadConstraints": list(placement.topology_spread_constraints),
        "priorityClassName": placement.priority_class_name,
        "runtimeClassName": placement.runtime_class_name,
        "schedulerName": placement.scheduler_name,
    }


def _pace_fields(window_s: float, limit: RateLimit) -> Mapping[str, int]:
    return {
        "stabilizationWindowSeconds": round(window_s),
        "pods": limit.pods,
        "percent": round(limit.share * 100),
        "periodSeconds": round(limit.period_s),
    }
