"""The leaves of a settings tree: names, types, help texts, and how one value is read. Used by `settings` alone."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})


class BadValue(Exception):
    """A value does not fit its field's type. The caller adds the source and the key."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting: a field of one group."""

    group: str
    name: str
    base: type
    """str, int, float, bool, or tuple (of strings)."""

    optional: bool
    default: str
    """For the help text only; empty when the field must be given."""

    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "KVARN_" + self.name.upper()


def group_types(root: type) -> dict[str, type]:
    return {field.name: typing.get_type_hints(root)[field.name] for field in dataclasses.fields(root)}


def leaves(root: type) -> list[Leaf]:
    """All leaves, in order. Field names must be unique over the groups: each is one flag."""
    found = [leaf for name, group in group_types(root).items() for leaf in _group_leaves(name, group)]
    assert len({leaf.name for leaf in found}) == len(found), f"field names repeat over the groups of {root.__name__}"
    return found


def _group_leaves(group_name: str, group: type) -> Iterator[Leaf]:
    hints = typing.get_type_hints(group)
    docs = _field_docs(group)
    for field in dataclasses.fields(group):
        base, optional = _base_type(hints[field.name])
        yield Leaf(group_name, field.name, base, optional, _default_text(field), docs.get(field.name, ""))


def _base_type(hint: object) -> tuple[type, bool]:
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    solid = [member for member in members if member is not types.NoneType]
    assert len(solid) == 1, f"a setting has one type, not {hint}"
    base = typing.get_origin(solid[0]) or solid[0]
    base = getattr(base, "__supertype__", base)  # NewType
    assert base in (str, int, float, bool, tuple), f"a setting cannot be {hint}"
    return base, len(members) > len(solid)


def _default_text(field: "dataclasses.Field[object]") -> str:
    if field.default is dataclasses.MISSING:
        return ""
    if isinstance(field.default, tuple):
        return ",".join(field.default)
    return "none" if field.default is None else str(field.default)


def _field_docs(group: type) -> dict[str, str]:
    """The string literal under each field of a dataclass. Empty when the source cannot be read."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(group)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    docs: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            docs[field.target.id] = " ".join(str(text.value.value).split())
    return docs


def parse_text(leaf: Leaf, text: str) -> object:
    """Read a value from a flag or an environment variable. Raises BadValue."""
    if leaf.optional and text.strip().lower() in ("", "none"):
        return None
    if leaf.base is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if leaf.base is bool:
        return _parse_bool(text)
    if leaf.base is str:
        return text
    try:
        return leaf.base(text)
    except ValueError:
        raise BadValue(f"{text!r} is not {_spelled(leaf.base)}") from None


def check_value(leaf: Leaf, value: object) -> object:
    """Accept a value of a settings file. Raises BadValue: a file has types, so only int becomes float."""
    if leaf.base is tuple:
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            return tuple(value)
    elif leaf.base is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, leaf.base) and (leaf.base is bool or not isinstance(value, bool)):
        return value
    raise BadValue(f"{value!r} is not {_spelled(leaf.base)}")


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE_WORDS | FALSE_WORDS:
        raise BadValue(f"{text!r} is not true or false")
    return word in TRUE_WORDS


def _spelled(base: type) -> str:
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false", tuple: "a list of strings"}
    return names[base]
