"""Names inside a worker pod that the operator relies on, so that users may not give them. Read by the parsers.

The pod's builder has them too; a test builds pods and compares.
"""

WORKER_CONTAINER = "worker"
"""`podTemplate` and `kubectl logs -c` know it by this name."""

POD_NAME_VARIABLE = "POD_NAME"

OWN_VOLUMES = frozenset({"tmp", "cache", "model", "tls"})
"""A mount may refer to them."""

GUARDED_VOLUMES = frozenset({"model", "tls"})
"""The others may be replaced: `cache` by a folder of the node, say."""

GUARDED_PATHS = frozenset({"/models", "/etc/kvarn/tls"})

OWN_FLAGS = frozenset({
    "host", "port", "metrics-port", "worker-id", "model", "model-revision", "shutdown-timeout-s", "log-json",
    "tls-cert-file", "tls-key-file", "tls-ca-file",
})  # fmt: skip
"""Flags of the worker process that the operator sets from what it knows."""

ENGINE_FLAGS = frozenset({
    "engine", "dtype", "block-size", "max-model-len", "max-batch-tokens", "max-sequences", "num-blocks",
    "kv-memory-gib", "threads",
})  # fmt: skip
"""Flags that have a field in `spec.engine`."""
