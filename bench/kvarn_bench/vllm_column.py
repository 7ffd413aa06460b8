"""Runs `vllm_peer.py` in the Python given by `--vllm-python` and reads its figures."""

import json
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from kvarn_bench.measure import EngineFigures, Figure, Grid
from kvarn_bench.vllm_peer import ANSWER

NAME = "vllm"
_LIMIT_S = 1800.0


class PeerFailed(Exception):
    """The other Python could not measure; the message ends with its last lines."""


@dataclass(frozen=True, slots=True)
class PeerJob:
    model: str
    dtype: str
    vocab_size: int
    threads: int


@dataclass(frozen=True, slots=True)
class PeerFigures:
    version: str
    figures: EngineFigures


def measure_vllm(python: str, job: PeerJob, grid: Grid) -> PeerFigures:
    script = Path(__file__).with_name("vllm_peer.py")
    argument = json.dumps({**asdict(job), **asdict(grid)})
    threads = {"OMP_NUM_THREADS": str(job.threads), "VLLM_CPU_KVCACHE_SPACE": "1"}
    try:
        done = subprocess.run(
            [python, str(script), argument],
            capture_output=True, text=True, timeout=_LIMIT_S, check=False, env={**os.environ, **threads},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerFailed(str(error)) from error
    if done.returncode != 0:
        raise PeerFailed("\n".join(done.stderr.splitlines()[-15:]))
    return read_answer(done.stdout)


def read_answer(output: str) -> PeerFigures:
    """Raises PeerFailed when no line is the answer."""
    try:
        (line,) = (line for line in output.splitlines() if line.startswith(ANSWER))
        answer = json.loads(line.removeprefix(ANSWER))
        prefill = tuple(_figure(int(size), seconds) for size, seconds in answer["prefill_s"].items())
        decode = tuple(_figure(int(size), seconds) for size, seconds in answer["decode_s"].items())
        return PeerFigures(str(answer["version"]), EngineFigures(prefill, decode))
    except (KeyError, ValueError, TypeError) as error:
        raise PeerFailed(f"no figures in the peer's output: {type(error).__name__}") from error


def _figure(size: int, seconds: float) -> Figure:
    return Figure(NAME, size, seconds, size / seconds)
