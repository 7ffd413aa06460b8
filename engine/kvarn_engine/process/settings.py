"""Strict settings for every process: flag over environment over file over default; what is unknown stops the process.

The root is a frozen dataclass of groups, each a frozen dataclass. A field `drain_timeout_s` of group `worker` is the
flag `--drain-timeout-s`, the variable `KVARN_DRAIN_TIMEOUT_S` and the key `drain_timeout_s` in the table `[worker]` of
the TOML file named by `--config`. The string under a field is its help text. It does not know what any setting means.
"""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kvarn_engine.process.settings_fields import BadValue, Leaf, check_value, group_types, leaves, parse_text

RootT = TypeVar("RootT")
Values = dict[str, object]

FOREIGN_VARIABLES = ("KVARN_CACHE", "KVARN_LOG", "KVARN_CONFIG")
"""Variables read elsewhere; a name that starts with `KVARN_LOG` is let through too."""


class SettingsError(Exception):
    """Names the source (flag, variable or file key) and what is wrong with it."""


class HelpRequested(Exception):
    """`--help` was given; the message is the help text."""


def load_settings(root: type[RootT], argv: Sequence[str], env: Mapping[str, str]) -> RootT:
    """Build `root` from all sources. Raises SettingsError, and HelpRequested for `--help`."""
    known = leaves(root)
    flags, config = _from_flags(known, argv, help_text(root))
    path = config or env.get("KVARN_CONFIG", "")
    merged = {**(_from_file(known, Path(path)) if path else {}), **_from_environment(known, env), **flags}
    return _build(root, known, merged)


def load_settings_or_exit(root: type[RootT], argv: Sequence[str], env: Mapping[str, str]) -> RootT:
    """The process edge: status 2 with the reason on standard error for wrong settings, status 0 for `--help`."""
    try:
        return load_settings(root, argv, env)
    except HelpRequested as asked:
        print(asked)
        raise SystemExit(0) from None
    except SettingsError as error:
        print(f"settings: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def help_text(root: type) -> str:
    lines = ["settings (flag over KVARN_* variable over --config file over default):", "", "  --config PATH  TOML file"]
    for leaf in leaves(root):
        value = f" / --no-{leaf.flag[2:]}" if leaf.base is bool else f" {leaf.base.__name__.upper()}"
        default = f" (default {leaf.default})" if leaf.default else ""
        lines.append(f"  {leaf.flag}{value}{default}  {leaf.help}".rstrip())
    return "\n".join(lines)


def _from_flags(known: list[Leaf], argv: Sequence[str], usage: str) -> tuple[Values, str]:
    """Values by field name, and the `--config` path. A flag given twice: the last one counts."""
    by_flag = {leaf.flag: leaf for leaf in known}
    negated = {f"--no-{leaf.flag[2:]}": leaf for leaf in known if leaf.base is bool}
    values: Values = {}
    config = ""
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        flag, equals, text = word.partition("=")
        if flag in ("--help", "-h"):
            raise HelpRequested(usage)
        if flag in negated and not equals:
            values[negated[flag].name] = False
        elif flag in by_flag and by_flag[flag].base is bool and not equals:
            values[by_flag[flag].name] = True
        elif flag in by_flag or flag == "--config":
            text = text if equals else _next_word(rest, flag)
            if flag == "--config":
                config = text
            else:
                values[by_flag[flag].name] = _read(by_flag[flag], text, f"flag {flag}")
        else:
            raise SettingsError(f"unknown flag {flag}")
    return values, config


def _next_word(rest: list[str], flag: str) -> str:
    if not rest:
        raise SettingsError(f"flag {flag} needs a value")
    return rest.pop(0)


def _from_environment(known: list[Leaf], env: Mapping[str, str]) -> Values:
    by_variable = {leaf.variable: leaf for leaf in known}
    values: Values = {}
    for variable in sorted(name for name in env if name.startswith("KVARN_")):
        if variable in by_variable:
            leaf = by_variable[variable]
            values[leaf.name] = _read(leaf, env[variable], f"variable {variable}")
        elif variable not in FOREIGN_VARIABLES and not variable.startswith("KVARN_LOG"):
            raise SettingsError(f"unknown variable {variable}")
    return values


def _read(leaf: Leaf, text: str, source: str) -> object:
    try:
        return parse_text(leaf, text)
    except BadValue as error:
        raise SettingsError(f"{source}: {error}") from None


def _from_file(known: list[Leaf], path: Path) -> Values:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"file {path}: {error}") from None
    by_key = {(leaf.group, leaf.name): leaf for leaf in known}
    values: Values = {}
    for group, table in tables.items():
        if not isinstance(table, dict):
            raise SettingsError(f"file {path}: key {group} stands outside a table")
        for name, value in table.items():
            leaf = by_key.get((group, name))
            if leaf is None:
                raise SettingsError(f"file {path}: unknown key [{group}] {name}")
            try:
                values[name] = check_value(leaf, value)
            except BadValue as error:
                raise SettingsError(f"file {path}: [{group}] {name}: {error}") from None
    return values


def _build(root: type[RootT], known: list[Leaf], values: Values) -> RootT:
    groups: Values = {}
    for group_name, group in group_types(root).items():
        mine = [leaf for leaf in known if leaf.group == group_name]
        given = {leaf.name: values[leaf.name] for leaf in mine if leaf.name in values}
        try:
            groups[group_name] = group(**given)
        except (TypeError, ValueError) as error:  # a field without default, or a check in __post_init__
            raise SettingsError(f"group {group_name}: {_plain(error)}") from None
    return root(**groups)


def _plain(error: Exception) -> str:
    text = str(error)
    if "missing" in text and "argument" in text:
        names = text.partition(": ")[2].replace("'", "").replace("_", "-")
        return f"must be given: {names}"
    return text
