"""Names inside a worker pod that the operator relies on. The pod builder uses them; the parsers keep users off them."""

WORKER_CONTAINER = "worker"
"""`podTemplate` and `kubectl logs -c` know it by this name."""

POD_NAME_VARIABLE = "POD_NAME"
"""Filled from the pod's metadata; `--worker-id` refers to it."""

TMP_VOLUME, TMP_PATH = "tmp", "/tmp"
CACHE_VOLUME, CACHE_PATH = "cache", "/cache"
MODEL_VOLUME, MODEL_PATH = "model", "/models"
"""Of the sources pvc and image, read-only."""

TLS_VOLUME, TLS_PATH = "tls", "/etc/kvarn/tls"

OWN_VOLUMES = frozenset({TMP_VOLUME, CACHE_VOLUME, MODEL_VOLUME, TLS_VOLUME})
OWN_PATHS = frozenset({TMP_PATH, CACHE_PATH, MODEL_PATH, TLS_PATH})

OWN_FLAGS = frozenset({
    "host", "port", "metrics-port", "worker-id", "model", "model-revision", "shutdown-timeout-s", "log-json",
    "tls-cert-file", "tls-key-file", "tls-ca-file", "tls-server-name",
})  # fmt: skip
"""Flags of the worker process that the operator sets from what it knows."""

ENGINE_FLAGS = frozenset({
    "engine", "dtype", "block-size", "max-model-len", "max-batch-tokens", "max-sequences", "num-blocks",
    "kv-memory-gib", "threads",
})  # fmt: skip
"""Flags that have a field in `spec.engine`."""
