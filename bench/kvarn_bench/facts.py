"""The machine and the versions a figure was measured with; every JSON file carries them."""

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_PACKAGES = ("kvarn", "grpcio", "protobuf", "httpx", "torch", "transformers", "numba", "numpy")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    cpu: str
    cores: int
    omp_num_threads: str
    load_average: float
    """Over one minute, at the start: other work on the machine makes figures worse."""

    system: str
    python: str
    versions: dict[str, str]


def machine_facts() -> MachineFacts:
    return MachineFacts(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        omp_num_threads=os.environ.get("OMP_NUM_THREADS", ""),
        load_average=os.getloadavg()[0],
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        versions=_versions(),
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
