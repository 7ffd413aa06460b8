"""Labels, annotations, field managers and port numbers: what operator, router, chart and CLI agree on.

Read by every builder and by the reconcile. The router repeats the two strings it needs, since roles never import
each other; a test compares them.
"""

GROUP = "kvarn.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

MODEL_SERVICE_LABEL = "kvarn.dev/model-service"
"""Name of the ModelService, on pools, pods, budgets and the router's pods."""

POOL_LABEL = "kvarn.dev/pool"
ROLE_LABEL = "kvarn.dev/role"
"""prefill or decode."""

REVISION_LABEL = "kvarn.dev/revision"
"""Hash of what a pod was made from; pods of one revision are equal."""

COMPONENT_LABEL = "app.kubernetes.io/component"
"""worker, router or operator."""

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "kvarn-operator"

PAIRING_ANNOTATION = "kvarn.dev/pairing"
"""Pods of different pairing may have different KV layouts, so a hand-off between them cannot be counted on."""

DRAINING_ANNOTATION = "kvarn.dev/draining"
"""On a pod: since when (RFC 3339) it gets no new work. Set by the operator or by `kvarn k8s drain`."""

DRAIN_REASON_ANNOTATION = "kvarn.dev/drain-reason"
SEEDED_REPLICAS_ANNOTATION = "kvarn.dev/seeded-replicas"
"""On a pool: the ModelService's `replicas` that was last written through to it."""

WRITTEN_REPLICAS_ANNOTATION = "kvarn.dev/written-replicas"
"""On a pool: the number that the operator itself wrote last, in the same request as the number.

API servers before 1.22 leave writes through `/scale` out of managedFields; there only this tells them from our own.
"""

DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"

APPLY_MANAGER = "kvarn-operator"
"""Field manager of everything the operator applies but replicas and status."""

STATUS_MANAGER = "kvarn-operator-status"
SEED_MANAGER = "kvarn-operator-seed"
"""Writes a pool's replicas when the ModelService's own number changes."""

SCALING_MANAGER = "kvarn-operator-scaling"
"""Writes a pool's replicas in SLO mode."""

OWN_MANAGERS = frozenset({APPLY_MANAGER, STATUS_MANAGER, SEED_MANAGER, SCALING_MANAGER})

GRPC_PORT_NAME, GRPC_PORT = "grpc", 7000
METRICS_PORT_NAME, METRICS_PORT = "metrics", 7001
"""Workers: also `/ready` and `/live` for the kubelet."""

ROUTER_PORT_NAME, ROUTER_PORT = "http", 8080
"""Routers: the API, `/metrics` and `/ready`."""
