"""README and docs: the commands exist, the files exist, every flag is described, and no link is dead."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kvarn_cli.main import build_app
from kvarn_decode.settings import DecodeSettings
from kvarn_engine.process.settings_fields import leaves
from kvarn_operator.settings import OperatorSettings
from kvarn_prefill.settings import PrefillSettings
from kvarn_router.settings import RouterSettings
from typer.main import get_command

from tests.style.source_tree import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def command_flags() -> dict[str, set[str]]:
    """Of each `kvarn` subcommand."""
    commands = get_command(build_app()).commands  # type: ignore[attr-defined]
    return {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in commands.items()
    }


def shell_lines(document: Path) -> Iterator[str]:
    for block in re.findall(r"```sh\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL):
        yield from (line.partition("  #")[0].strip() for line in block.splitlines() if line.strip())


def test_the_readme_starts_with_the_two_commands() -> None:
    assert list(shell_lines(ROOT / "README.md"))[:2] == ["make up", "make test"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_and_subcommands_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    flags = command_flags()
    for line in shell_lines(document):
        if line.startswith("make "):
            assert line.split()[1] in targets, line
        if (command := re.match(r"(?:\.venv/bin/)?kvarn (\w+)", line)) is not None:
            assert command[1] in flags, line
        used = set(re.findall(r"--[a-z][a-z-]+", line)) if "kvarn" in line or "make up" in line else set()
        assert used <= set().union(*flags.values()), line


@pytest.mark.parametrize("root", [RouterSettings, PrefillSettings, DecodeSettings, OperatorSettings])
def test_every_setting_is_described(root: type) -> None:
    assert [leaf.flag for leaf in leaves(root) if f"`{leaf.flag}`" not in OPERATIONS] == []


def test_every_flag_of_the_command_is_described() -> None:
    flags = {flag for options in command_flags().values() for flag in options if flag.startswith("--")}
    missing = sorted(flag for flag in flags - {"--help"} if not re.search(rf"{flag}\b", OPERATIONS))
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_files_named_in_the_readme_exist() -> None:
    """`handoff.py` alone stands for a file of that name somewhere; a path stands for itself, whole or its end."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    known = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/kvarn_*/**/*.py")]
    named = re.findall(r"`([\w./]+\.py)`", text)
    assert len(named) > 10
    assert [name for name in named if not any(path == name or path.endswith("/" + name) for path in known)] == []


def test_metrics_named_in_the_docs_exist() -> None:
    sources = "".join(path.read_text() for path in ROOT.glob("*/kvarn_*/**/*.py"))
    named = set(re.findall(r"`(kvarn_[a-z_]+)`", OPERATIONS)) - {"kvarn_prefill", "kvarn_decode", "kvarn_router"}
    assert len(named) > 20
    assert sorted(name for name in named if f'"{name.removesuffix("_total")}"' not in sources) == []
