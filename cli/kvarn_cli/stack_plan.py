"""What `kvarn up` starts: command line, environment and address of each process. Pure; `supervisor` carries it out."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
SHARED_VARIABLES = ("KVARN_CACHE", "KVARN_LOG")
"""Prefixes of variables handed on. Other `KVARN_*` variables are settings of one role; the others refuse them."""


@dataclass(frozen=True, slots=True)
class StackOptions:
    model: str
    prefill: int
    decode: int
    host: str
    port: int
    threads: int
    """0: the cores shared out evenly among the workers."""

    dtype: str
    engine: str
    worker_args: str = ""
    prefill_args: str = ""
    decode_args: str = ""
    router_args: str = ""


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    name: str
    role: str
    address: str
    metrics_port: int
    command: tuple[str, ...]
    environment: Mapping[str, str]


def ports_needed(options: StackOptions) -> int:
    """One to serve and one for metrics by worker."""
    return 2 * (options.prefill + options.decode)


def plan_stack(
    options: StackOptions, ports: Sequence[int], environment: Mapping[str, str], cores: int, python: str
) -> tuple[ProcessPlan, ...]:
    """Workers first, the router last. `options.port` is final here: 0 has been replaced by a free one."""
    workers = options.prefill + options.decode
    threads = options.threads or max(1, cores // max(1, workers))
    shared = _child_environment(environment, threads)
    names = [("prefill", i) for i in range(options.prefill)] + [("decode", i) for i in range(options.decode)]
    pairs = zip(ports[0::2], ports[1::2], strict=True)
    plans = [
        _worker(options, role, index, address, threads, shared, python)
        for (role, index), address in zip(names, pairs, strict=True)
    ]
    return (*plans, _router(options, [plan.address for plan in plans], shared, python))


def _worker(
    options: StackOptions,
    role: str,
    index: int,
    ports: tuple[int, int],
    threads: int,
    environment: Mapping[str, str],
    python: str,
) -> ProcessPlan:
    port, metrics_port = ports
    name = f"{role}-{index}"
    own_args = options.prefill_args if role == "prefill" else options.decode_args
    command = [
        *(python, "-m", f"kvarn_{role}", "--host", LOOPBACK, "--port", str(port), "--metrics-port", str(metrics_port)),
        *("--worker-id", name, "--model", options.model, "--engine", options.engine, "--threads", str(threads)),
        *(("--dtype", options.dtype) if options.dtype else ()),
        *shlex.split(options.worker_args),
        *shlex.split(own_args),
    ]
    return ProcessPlan(name, role, f"{LOOPBACK}:{port}", metrics_port, tuple(command), environment)


def _router(
    options: StackOptions, addresses: Sequence[str], environment: Mapping[str, str], python: str
) -> ProcessPlan:
    command = [
        *(python, "-m", "kvarn_router", "--host", options.host, "--port", str(options.port)),
        *("--model", options.model, "--workers", ",".join(addresses)),
        *(("--ready-without-prefill",) if options.prefill == 0 else ()),
        *shlex.split(options.router_args),
    ]
    return ProcessPlan("router", "router", f"{options.host}:{options.port}", 0, tuple(command), environment)


def _child_environment(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("KVARN_") or name.startswith(SHARED_VARIABLES)
    }
    return {**kept, **dict.fromkeys(THREAD_VARIABLES, str(threads)), "PYTHONUNBUFFERED": "1"}
