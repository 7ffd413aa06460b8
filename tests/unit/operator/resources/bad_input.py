"""What users get wrong in a ModelService: one row each, with who refuses it and what the operator says."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from kvarn_operator.resources.pod_contract import ENGINE_FLAGS, OWN_FLAGS


class Guard(Enum):
    """The first that refuses; the operator's own code refuses everything."""

    SCHEMA = "schema"
    RULE = "CEL rule"
    CODE = "code alone"


@dataclass(frozen=True)
class Bad:
    spec: Any
    field: str
    says: str
    guard: Guard

    def __str__(self) -> str:
        return f"{self.field}, {self.says}"


def in_prefill(**fields: Any) -> Any:
    return {"prefill": fields}


def in_template(**fields: Any) -> Any:
    return in_prefill(template=fields)


def in_pod_template(spec: Any) -> Any:
    return in_template(podTemplate={"spec": spec})


def in_worker(**fields: Any) -> Any:
    return in_pod_template({"containers": [{"name": "worker", **fields}]})


TEMPLATE = "spec.prefill.template"
POD_SPEC = f"{TEMPLATE}.podTemplate.spec"
WORKER = f"{POD_SPEC}.containers[0]"
GPUS = {"template": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}
SLO = {"mode": "SLO", "max": 4}

TYPES = [
    Bad({"engine": {"blockSize": "16"}}, "spec.engine.blockSize", "'16' is not an integer", Guard.SCHEMA),
    Bad({"engine": {"blockSize": True}}, "spec.engine.blockSize", "True is not an integer", Guard.SCHEMA),
    Bad({"engine": {"kvMemoryGiB": "4"}}, "spec.engine.kvMemoryGiB", "'4' is not a number", Guard.SCHEMA),
    Bad({"model": {"revision": 7}}, "spec.model.revision", "7 is not text; put it in quotes", Guard.SCHEMA),
    Bad({"model": {"servedNames": "one"}}, "spec.model.servedNames", "'one' is not a list", Guard.SCHEMA),
    Bad({"model": {"servedNames": [1]}}, "spec.model.servedNames[0]", "1 is not text", Guard.SCHEMA),
    Bad({"slo": 2000}, "spec.slo", "2000 is not an object", Guard.SCHEMA),
    Bad(in_template(labels={"tier": 1}), f"{TEMPLATE}.labels.tier", "1 is not text; put it in quotes", Guard.SCHEMA),
    Bad(in_template(args={"max-waiting": 0.5}), f"{TEMPLATE}.args.max-waiting", "0.5 is not text", Guard.SCHEMA),
    Bad(in_template(tolerations=["all"]), f"{TEMPLATE}.tolerations[0]", "'all' is not an object", Guard.SCHEMA),
]  # fmt: skip
BOUNDS = [
    Bad({"engine": {"type": "vllm"}}, "spec.engine.type", "'vllm' is none of torch, simulated", Guard.SCHEMA),
    Bad({"engine": {"dtype": "fp8"}}, "spec.engine.dtype", "none of auto, bfloat16, float16, float32", Guard.SCHEMA),
    Bad({"engine": {"blockSize": 0}}, "spec.engine.blockSize", "is 0, outside of 1 to 1024", Guard.SCHEMA),
    Bad({"engine": {"kvMemoryGiB": 0}}, "spec.engine.kvMemoryGiB", "leaves no room", Guard.SCHEMA),
    Bad({"engine": {"kvMemoryGiB": -1}}, "spec.engine.kvMemoryGiB", "is -1, outside of 0", Guard.SCHEMA),
    Bad({"engine": {"threads": 0}}, "spec.engine.threads", "is 0, outside of 1", Guard.SCHEMA),
    Bad({"slo": {"ttftMs": 0}}, "spec.slo.ttftMs", "is 0, outside of 1", Guard.SCHEMA),
    Bad({"slo": {"percentile": 100}}, "spec.slo.percentile", "is 100, outside of 50 to 99.9", Guard.SCHEMA),
    Bad({"slo": {"percentile": 0.95}}, "spec.slo.percentile", "is 0.95, outside of 50 to 99.9", Guard.SCHEMA),
    Bad({"budget": {}}, "spec.budget.gpus", "is required", Guard.SCHEMA),
    Bad({"budget": {"gpus": -1}}, "spec.budget.gpus", "is -1, outside of 0", Guard.SCHEMA),
    Bad({"budget": {"gpus": 1}}, "spec.budget.gpus", "no pool asks for GPUs in template.resources", Guard.CODE),
    Bad({"budget": {"gpus": 1, "policy": "Fair"}}, "spec.budget.policy", "none of Proportional", Guard.SCHEMA),
    Bad({"rollout": {"maxSurge": -1}}, "spec.rollout.maxSurge", "is -1, outside of 0", Guard.SCHEMA),
    Bad(in_prefill(replicas=-1), "spec.prefill.replicas", "is -1, outside of 0 to 1000", Guard.SCHEMA),
    Bad(in_prefill(replicas=1001), "spec.prefill.replicas", "is 1001, outside of 0 to 1000", Guard.SCHEMA),
    Bad(in_prefill(scaling={"mode": "Auto"}), "spec.prefill.scaling.mode", "none of Manual, External", Guard.SCHEMA),
    Bad(in_prefill(scaling={"max": 0}), "spec.prefill.scaling.max", "is 0, outside of 1", Guard.SCHEMA),
    Bad({"decode": {"drain": {"timeoutSeconds": -1}}}, "spec.decode.drain.timeoutSeconds", "is -1", Guard.SCHEMA),
    Bad(
        in_prefill(scaling={"behaviour": {"scaleDown": {"percent": 101}}}),
        "spec.prefill.scaling.behaviour.scaleDown.percent", "is 101, outside of 0 to 100", Guard.SCHEMA,
    ),
    Bad(in_template(imagePullPolicy="Often"), f"{TEMPLATE}.imagePullPolicy", "none of Always,", Guard.SCHEMA),
    Bad(in_template(startupTimeoutSeconds=1), f"{TEMPLATE}.startupTimeoutSeconds", "is 1, outside of 10", Guard.SCHEMA),
]  # fmt: skip
NAMES = [
    Bad({"model": {"source": {"hub": {}}}}, "spec.model.source.hub.id", "is required", Guard.SCHEMA),
    Bad({"model": {"source": {"hub": {"id": "a b"}}}}, "spec.model.source.hub.id", "fit the pattern", Guard.SCHEMA),
    Bad({"model": {"source": {"pvc": {"path": "x"}}}}, "spec.model.source.pvc.claimName", "is required", Guard.SCHEMA),
    Bad(
        {"model": {"source": {"pvc": {"claimName": "c", "path": "a/../../b"}}}},
        "spec.model.source.pvc.path", "'a/../../b' does not fit", Guard.SCHEMA,
    ),
    Bad(
        {"model": {"source": {"image": {"reference": "r", "path": "/m"}}}},
        "spec.model.source.image.path", "'/m' does not fit", Guard.SCHEMA,
    ),
    Bad({"model": {"source": {"url": {"url": "s3://x"}}}}, "spec.model.source.url.url", "does not fit", Guard.SCHEMA),
    Bad({"model": {"revision": "r" * 254}}, "spec.model.revision", "has 254 characters, at most 253", Guard.SCHEMA),
    Bad({"model": {"servedNames": ["a"] * 17}}, "spec.model.servedNames", "has 17 names, at most 16", Guard.SCHEMA),
    Bad({"model": {"servedNames": ["a", "a"]}}, "spec.model.servedNames[1]", "is given twice", Guard.CODE),
    Bad({"model": {"servedNames": ["a,b"]}}, "spec.model.servedNames[0]", "does not fit the pattern", Guard.SCHEMA),
    Bad({"model": {"secretRef": {}}}, "spec.model.secretRef.name", "is required", Guard.SCHEMA),
    Bad({"model": {"secretRef": {"name": "s", "key": ""}}}, "spec.model.secretRef.key", "does not fit", Guard.SCHEMA),
    Bad({"model": {"cache": {"sizeLimit": "lots"}}}, "spec.model.cache.sizeLimit", "does not fit", Guard.SCHEMA),
    Bad(in_template(imagePullSecrets=[{}]), f"{TEMPLATE}.imagePullSecrets[0].name", "is required", Guard.SCHEMA),
    Bad(in_template(env=[{"value": "1"}]), f"{TEMPLATE}.env[0].name", "is required", Guard.SCHEMA),
    Bad(in_template(volumeMounts=[{"name": "v"}]), f"{TEMPLATE}.volumeMounts[0].mountPath", "is requir", Guard.SCHEMA),
    Bad(in_template(labels={"a": "b" * 64}), f"{TEMPLATE}.labels.a", "is no label value", Guard.SCHEMA),
    Bad(in_template(labels={"a": "b c"}), f"{TEMPLATE}.labels.a", "'b c' is no label value", Guard.CODE),
    Bad(in_template(labels={"a b": "c"}), f"{TEMPLATE}.labels.a b", "is no name that Kubernetes", Guard.CODE),
    Bad(in_template(annotations={"-a": "b"}), f"{TEMPLATE}.annotations.-a", "is no name that Kube", Guard.CODE),
    Bad(
        in_template(labels={f"l{number}": "" for number in range(65)}),
        f"{TEMPLATE}.labels", "has 65 entries, at most 64", Guard.SCHEMA,
    ),
    Bad(
        in_template(resources={"limits": {"memory": "16 GB"}}),
        f"{TEMPLATE}.resources.limits.memory", "'16 GB' is no amount such as", Guard.SCHEMA,
    ),
]  # fmt: skip
TOGETHER = [
    Bad(
        {"model": {"source": {"hub": {"id": "a/b"}, "url": {"url": "https://x.example/a.tar"}}}},
        "spec.model.source", "names 2 sources (hub, url); give one", Guard.RULE,
    ),
    Bad(
        {"model": {"source": {"url": {"url": "https://x.example/a.tar"}}, "secretRef": {"name": "s"}}},
        "spec.model.secretRef", "is for models of a hub", Guard.RULE,
    ),
    Bad({"model": {"revision": "v1"}}, "spec.model.revision", "is for models of a hub", Guard.RULE),
    Bad(
        {"model": {"cache": {"claimName": "c", "sizeLimit": "1Gi"}}},
        "spec.model.cache.sizeLimit", "used without claimName; give one of the two", Guard.RULE,
    ),
    Bad({"engine": {"numBlocks": 8, "kvMemoryGiB": 1}}, "spec.engine.numBlocks", "give one of the two", Guard.RULE),
    Bad({"engine": {"maxSequences": 513}}, "spec.engine.maxBatchTokens", "(512) is below maxSequences", Guard.RULE),
    Bad({"engine": {"maxBatchTokens": 63}}, "spec.engine.maxBatchTokens", "(63) is below maxSequences", Guard.RULE),
    Bad({"rollout": {"maxSurge": 0}}, "spec.rollout.maxSurge", "nothing can be replaced", Guard.RULE),
    Bad(
        in_prefill(scaling={**SLO, "min": 5}), "spec.prefill.scaling.min", "(5) is above max (4)", Guard.RULE,
    ),
    Bad(in_prefill(scaling={"min": 0}), "spec.prefill.scaling.min", "mode Manual write replicas: 0", Guard.RULE),
    Bad(
        {"decode": {"scaling": {"min": 0, "mode": "External"}}},
        "spec.decode.scaling.min", "needs mode SLO; in mode External write replicas: 0", Guard.RULE,
    ),
    Bad(in_prefill(replicas=5, scaling=SLO), "spec.prefill.replicas", "(5) is above scaling.max (4)", Guard.RULE),
    Bad({"decode": {"replicas": 5, "scaling": SLO}}, "spec.decode.replicas", "above scaling.max (4)", Guard.RULE),
    Bad(
        {"budget": {"gpus": 3}, "prefill": GPUS, "decode": GPUS},
        "spec.budget.gpus", "is 3, but the pools' minimum needs 4", Guard.CODE,
    ),
    Bad(
        in_template(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        f"{TEMPLATE}.env[1].name", "'A' comes twice", Guard.CODE,
    ),
    Bad(
        in_template(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        f"{TEMPLATE}.volumeMounts[0].name", "'data' is none of template.volumes", Guard.CODE,
    ),
]  # fmt: skip
RESERVED = [
    *(Bad(in_template(args={flag: "1"}), f"{TEMPLATE}.args.{flag}", "is set by the operator", Guard.RULE)
      for flag in sorted(OWN_FLAGS)),
    *(Bad(in_template(args={flag: "1"}), f"{TEMPLATE}.args.{flag}", "is set in spec.engine", Guard.RULE)
      for flag in sorted(ENGINE_FLAGS)),
    Bad(in_template(args={"--max-waiting": "1"}), f"{TEMPLATE}.args.--max-waiting", "without dashes", Guard.RULE),
    Bad(in_template(args={"Max_Waiting": "1"}), f"{TEMPLATE}.args.Max_Waiting", "is no flag", Guard.CODE),
    *(Bad(in_template(**{kind: {key: "x"}}), f"{TEMPLATE}.{kind}.{key}", "belongs to the operator", Guard.RULE)
      for kind in ("labels", "annotations")
      for key in ("kvarn.dev/pool", "app.kubernetes.io/component", "app.kubernetes.io/managed-by",
                  "controller.kubernetes.io/pod-deletion-cost")),
    Bad(in_template(env=[{"name": "POD_NAME"}]), f"{TEMPLATE}.env[0].name", "is used by the operator", Guard.CODE),
    Bad(in_template(volumes=[{"name": "model"}]), f"{TEMPLATE}.volumes[0].name", "is used by the", Guard.CODE),
    Bad(
        in_template(volumeMounts=[{"name": "tmp", "mountPath": "/models/"}]),
        f"{TEMPLATE}.volumeMounts[0].mountPath", "/models/ is used by the operator", Guard.CODE,
    ),
]  # fmt: skip
POD_TEMPLATE = [
    Bad(
        in_template(podTemplate={"metadata": {"name": "x"}}),
        f"{TEMPLATE}.podTemplate.metadata.name", "only labels and annotations", Guard.CODE,
    ),
    Bad(in_template(podTemplate={"kind": "Pod"}), f"{TEMPLATE}.podTemplate.kind", "has metadata and sp", Guard.CODE),
    *(Bad(
        in_template(podTemplate={"metadata": {kind: {"kvarn.dev/role": "x"}}}),
        f"{TEMPLATE}.podTemplate.metadata.{kind}.kvarn.dev/role", "belongs to the operator", Guard.RULE,
    ) for kind in ("labels", "annotations")),
    Bad(
        in_template(podTemplate={"metadata": {"labels": {"a": "b c"}}}),
        f"{TEMPLATE}.podTemplate.metadata.labels.a", "'b c' is no label value", Guard.CODE,
    ),
    Bad(in_template(args={f"f{number}": 1 for number in range(65)}), f"{TEMPLATE}.args", "has 65 en", Guard.SCHEMA),
    Bad(in_pod_template({"restartPolicy": "Never"}), f"{POD_SPEC}.restartPolicy", "is always Always", Guard.CODE),
    Bad(
        in_pod_template({"terminationGracePeriodSeconds": 5}),
        f"{POD_SPEC}.terminationGracePeriodSeconds", "follows from drain.timeoutSeconds", Guard.CODE,
    ),
    Bad(in_pod_template({"enableServiceLinks": True}), f"{POD_SPEC}.enableServiceLinks", "is always fal", Guard.CODE),
    Bad(in_pod_template({"volumes": [{"name": "tls"}]}), f"{POD_SPEC}.volumes[0].name", "is used by", Guard.CODE),
    Bad(in_pod_template({"containers": [{}]}), f"{POD_SPEC}.containers[0].name", "is required", Guard.CODE),
    *(Bad(in_worker(**{key: "x"}), f"{WORKER}.{key}", says, Guard.CODE) for key, says in (
        ("command", "flags go into template.args"), ("args", "flags go into template.args"),
        ("image", "goes into template.image"), ("imagePullPolicy", "goes into template.imagePullPolicy"),
        ("resources", "go into template.resources"), ("readinessProbe", "drain and rollout go by it"),
    )),
    Bad(in_worker(ports=[{"containerPort": 7001}]), f"{WORKER}.ports[0]", "the ports grpc and metrics", Guard.CODE),
    Bad(in_worker(ports=[{"name": "grpc", "containerPort": 9}]), f"{WORKER}.ports[0]", "ports grpc", Guard.CODE),
    Bad(in_worker(env=[{"name": "POD_NAME"}]), f"{WORKER}.env[0].name", "is used by the operator", Guard.CODE),
    Bad(
        in_worker(volumeMounts=[{"name": "x", "mountPath": "/etc/kvarn/tls"}]),
        f"{WORKER}.volumeMounts[0].mountPath", "/etc/kvarn/tls is used by the operator", Guard.CODE,
    ),
]  # fmt: skip

EVERYTHING = [*TYPES, *BOUNDS, *NAMES, *TOGETHER, *RESERVED, *POD_TEMPLATE]
