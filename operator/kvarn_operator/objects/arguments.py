"""The worker process's command line. Used by the worker container's builder.

The last of two equal flags counts.
"""

import math
from collections.abc import Mapping

from kvarn_operator.objects.model_source import model_flags
from kvarn_operator.objects.volumes import TLS_PATH
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.labels import GRPC_PORT, METRICS_PORT
from kvarn_operator.resources.model_service import EngineOptions, ModelServiceSpec
from kvarn_operator.resources.pod_contract import POD_NAME_VARIABLE
from kvarn_operator.resources.pool_template import Pool
from kvarn_operator.scaling.spec import Role


def command(role: Role) -> list[str]:
    return ["python", "-m", f"kvarn_{role.value}"]


def worker_arguments(spec: ModelServiceSpec, pool: Pool, defaults: OperatorDefaults) -> list[str]:
    """What routers, probes and the drain count on comes after what a user may say otherwise."""
    given = [f"--{name}={value}" for name, value in pool.template.args]
    flags = {
        "host": "0.0.0.0",
        "port": str(GRPC_PORT),
        "metrics-port": str(METRICS_PORT),
        "worker-id": f"$({POD_NAME_VARIABLE})",
        **model_flags(spec.model),
        "shutdown-timeout-s": f"{pool.drain.timeout_s:g}",
        **(_TLS_FLAGS if defaults.tls_secret else {}),
    }
    return [*_flags(_engine_flags(spec.engine)), *given, *_flags(flags), *(["--log-json"] if defaults.log_json else [])]


def grace_period_s(pool: Pool) -> int:
    """The worker ends its streams within the drain's timeout; then half a minute for everything else."""
    return math.ceil(pool.drain.timeout_s) + 30


_TLS_FLAGS: Mapping[str, str] = {
    "tls-cert-file": f"{TLS_PATH}/tls.crt",
    "tls-key-file": f"{TLS_PATH}/tls.key",
    "tls-ca-file": f"{TLS_PATH}/ca.crt",
}


def _engine_flags(engine: EngineOptions) -> dict[str, str]:
    values: dict[str, str | float | None] = {
        "engine": engine.engine,
        "dtype": engine.dtype,
        "block-size": engine.block_size,
        "max-model-len": engine.max_model_len,
        "max-batch-tokens": engine.max_batch_tokens,
        "max-sequences": engine.max_sequences,
        "num-blocks": engine.num_blocks,
        "kv-memory-gib": engine.kv_memory_gib,
        "threads": engine.threads,
    }
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flags(values: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
