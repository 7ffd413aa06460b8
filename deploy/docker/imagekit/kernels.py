"""The CPU kernels, compiled for the kind of CPU that builds the image, so that new pods on such nodes need not."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .layers import LayerWriter, key_of
from .roles import KERNELS

COMPILER = "kvarn_engine.runtime.backends.kernel_folder"
_SOURCES = ("engine/kvarn_engine", "proto/kvarn_proto")


class Kernels:
    def __init__(self, root: Path) -> None:
        self._root = root

    def key(self) -> str:
        backends = sorted((self._root / "engine/kvarn_engine/runtime/backends").glob("*.py"))
        cpu = [
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("model name", "flags"))
        ]
        return key_of(
            [
                Path(__file__).read_bytes(),
                sys.version,
                importlib.metadata.version("numba"),
                *sorted(set(cpu)),
                *(path.read_bytes() for path in backends),
            ]
        )

    def fill(self, writer: LayerWriter) -> None:
        """numba trusts compiled code only if its source has the size and the time that it had: in images, time 0."""
        with tempfile.TemporaryDirectory() as scratch:
            sources, compiled = Path(scratch, "sources"), Path(scratch, "compiled")
            for package in _SOURCES:
                shutil.copytree(self._root / package, sources / Path(package).name)
            for path in sources.rglob("*.py"):
                os.utime(path, (0, 0))
            environment = {**os.environ, "PYTHONPATH": str(sources), "KVARN_CACHE": str(Path(scratch, "cache"))}
            command = [sys.executable, "-m", COMPILER, str(compiled)]
            subprocess.run(command, check=True, stdout=sys.stderr, env=environment, cwd=sources)
            writer.tree(KERNELS, compiled)
