"""Regenerate the Python code of the wire: `python proto/generate.py`; `--check` only says whether it is current."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTO_ROOT = Path(__file__).parent
SOURCES = sorted((PROTO_ROOT / "kvarn_proto" / "v1").glob("*.proto"))


def generate(target: Path) -> None:
    """Write `*_pb2.py`, `*_pb2_grpc.py` and `*_pb2.pyi` below `target`. Raises RuntimeError when protoc fails."""
    arguments = [
        "protoc",
        f"-I{PROTO_ROOT}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        f"--grpc_python_out={target}",
        *(str(source) for source in SOURCES),
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed")


def stale_files() -> list[str]:
    """Names of committed files that differ from what protoc writes now."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = sorted(Path(folder).rglob("*_pb2*"))
        names = [str(path.relative_to(folder)) for path in fresh]
        return [name for name in names if _content(PROTO_ROOT / name) != _content(Path(folder) / name)]


def _content(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main() -> int:
    if "--check" not in sys.argv[1:]:
        generate(PROTO_ROOT)
        return 0
    stale = stale_files()
    for name in stale:
        print(f"stale: proto/{name}; run `make proto`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
