"""`python -m kvarn_bench handoff|engine|serve|scaling`: reads the command line and runs one benchmark.

Each command module is imported only when asked for, so that `serve` and `handoff` never load torch.
"""

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

COMMANDS = {
    "handoff": "GB/s of one hand-off stream beside a raw TCP socket; exposed transfer as a share of TTFT",
    "engine": "prefill tokens/s and decode step time beside transformers, and vLLM when given",
    "serve": "open-loop load on an OpenAI server: latency percentiles and goodput under an objective",
    "scaling": "autoscalers on a simulated fleet: objectives met against GPU-hours",
}


def main(argv: Sequence[str]) -> int:
    command = argv[0] if argv else ""
    if command not in COMMANDS:
        print("usage: python -m kvarn_bench COMMAND [--smoke] [--json PATH] ...\n")
        print("\n".join(f"  {name:8} {text}" for name, text in COMMANDS.items()))
        return 0 if command in ("-h", "--help") else 2
    module = importlib.import_module(f"kvarn_bench.{command}")
    parser = argparse.ArgumentParser(
        prog=f"kvarn_bench {command}", description=COMMANDS[command],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--smoke", action="store_true", help="a few seconds, to see that it works; figures mean little")
    parser.add_argument("--json", type=Path, help="write results and machine facts here")
    module.add_arguments(parser)
    options = parser.parse_args(argv[1:])
    status: int = module.run(options, argv, options.json)
    return status


def _unwind(number: int, frame: FrameType | None) -> None:
    """SIGTERM must end the child processes too, which the default action would leave behind."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _unwind)
    sys.exit(main(sys.argv[1:]))
