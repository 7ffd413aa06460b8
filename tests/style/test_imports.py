"""What a fresh interpreter has loaded after importing a part: the router and the command never reach torch."""

import subprocess
import sys
import textwrap

import pytest

HEAVY = ("torch", "transformers", "numba")


def loaded_after_import(package: str, watched: tuple[str, ...]) -> list[str]:
    """Import every module of `package` in a process of its own; which of `watched` came along."""
    script = textwrap.dedent(f"""
        import importlib, pkgutil, sys
        package = importlib.import_module({package!r})
        found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        for info in found:
            importlib.import_module(info.name)
        assert any(name.startswith({package!r} + ".") for name in sys.modules), "nothing was imported"
        print(" ".join(name for name in {watched!r} if name in sys.modules))
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "package", ["kvarn_router", "kvarn_operator", "kvarn_cli", "kvarn_engine.process", "kvarn_engine.wire"]
)
def test_these_stay_free_of_torch(package: str) -> None:
    assert loaded_after_import(package, HEAVY) == []


def test_the_core_is_pure() -> None:
    assert loaded_after_import("kvarn_engine.core", (*HEAVY, "asyncio", "grpc", "numpy")) == []


def test_the_planner_is_pure() -> None:
    assert loaded_after_import("kvarn_operator.scaling", (*HEAVY, "asyncio", "grpc", "numpy", "kvarn_proto")) == []


def test_the_check_itself_sees_what_is_loaded() -> None:
    assert loaded_after_import("kvarn_engine.wire", ("grpc", "torch")) == ["grpc"]
