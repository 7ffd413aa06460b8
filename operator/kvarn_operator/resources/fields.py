"""A part of a resource, read field by field: type and bounds are checked, and an error names the path in YAML.

Used by the parsers alone. A field that is absent or null has its default. Fields that no parser asks for are left
alone: an older operator may meet a newer CRD.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.pool_template import Json

Choice = TypeVar("Choice", bound=Enum)


@dataclass(frozen=True, slots=True)
class Fields:
    path: str = ""
    values: Mapping[str, Json] = field(default_factory=dict)

    def error(self, key: str, message: str) -> InvalidResource:
        return InvalidResource(self.path_of(key), message)

    def path_of(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path and key else self.path or key

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def section(self, key: str) -> "Fields":
        """Empty when absent."""
        return Fields(self.path_of(key), self._mapping(key))

    def sections(self, key: str) -> Iterator["Fields"]:
        """Of a list of objects."""
        for index, item in enumerate(self._list(key)):
            path = f"{self.path_of(key)}[{index}]"
            if not isinstance(item, Mapping):
                raise InvalidResource(path, f"{item!r} is not an object")
            yield Fields(path, item)

    def text(self, key: str, default: str = "", pattern: str = "", longest: int = 1024) -> str:
        """`pattern` describes the whole text; it is not asked of an absent one."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(key, f"{value!r} is not text; put it in quotes")
        if len(value) > longest:
            raise self.error(key, f"has {len(value)} characters, at most {longest} are allowed")
        if pattern and re.fullmatch(pattern, value) is None:
            raise self.error(key, f"{value!r} does not fit the pattern {pattern}")
        return value

    def required_text(self, key: str, pattern: str = "", longest: int = 253) -> str:
        found = self.text(key, pattern=pattern, longest=longest)
        if not found:
            raise self.error(key, "is required")
        return found

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        found = self.optional_integer(key, low, high)
        return default if found is None else found

    def optional_integer(self, key: str, low: int = 1, high: int = 2**31) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, f"{value!r} is not an integer")
        return int(self._bounded(key, value, low, high))

    def optional_number(self, key: str, low: float, high: float) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, f"{value!r} is not a number")
        return float(self._bounded(key, value, low, high))

    def choice(self, key: str, default: Choice) -> Choice:
        """One of the values of the default's enum."""
        kind = type(default)
        return kind(self.word(key, str(default.value), tuple(str(member.value) for member in kind)))

    def word(self, key: str, default: str, words: tuple[str, ...]) -> str:
        found = self.text(key, default)
        if found not in words:
            raise self.error(key, f"{found!r} is none of {', '.join(word for word in words if word)}")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        items = self._list(key)
        for index, item in enumerate(items):
            if not isinstance(item, str) or not item:
                raise InvalidResource(f"{self.path_of(key)}[{index}]", f"{item!r} is not text")
        return items

    def text_map(self, key: str, numbers: bool = False) -> tuple[tuple[str, str], ...]:
        """Sorted by key. With `numbers`, integers count as text, as in a `IntOrString` of Kubernetes."""
        values = self._mapping(key)
        for name, value in values.items():
            number = isinstance(value, int) and not isinstance(value, bool)
            if not isinstance(value, str) and not (numbers and number):
                raise InvalidResource(f"{self.path_of(key)}.{name}", f"{value!r} is not text; put it in quotes")
        return tuple(sorted((name, str(value)) for name, value in values.items()))

    def json(self, key: str) -> Json:
        """An object that passes through, or None."""
        return self._mapping(key) or None

    def json_list(self, key: str) -> tuple[Json, ...]:
        """Objects that pass through."""
        return tuple(item.values for item in self.sections(key))

    def _mapping(self, key: str) -> Mapping[str, Json]:
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(key, f"{value!r} is not an object")
        return value or {}

    def _list(self, key: str) -> tuple[Json, ...]:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list | tuple):
            raise self.error(key, f"{value!r} is not a list")
        return tuple(value or ())

    def _bounded(self, key: str, value: float, low: float, high: float) -> float:
        if not low <= value <= high:
            raise self.error(key, f"is {value:g}, outside of {low:g} to {high:g}")
        return value
