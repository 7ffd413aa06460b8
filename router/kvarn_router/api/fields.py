"""Reads typed, range-checked fields out of a JSON object. Every complaint names the field.

Called by the request parsers of this package. Knows nothing of what the fields mean. `null` counts as absent and
unknown fields are never looked at, as OpenAI's servers do.
"""

from collections.abc import Mapping
from typing import NoReturn

from kvarn_router.errors import InvalidInput


class Fields:
    def __init__(self, data: Mapping[str, object], path: str = "") -> None:
        self._data = data
        self._path = path

    def name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def raw(self, key: str) -> object:
        return self._data.get(key)

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def boolean(self, key: str, default: bool = False) -> bool:
        value = self._data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong_type(key, "a boolean", value)
        return value

    def integer(self, key: str, low: int, high: int) -> int | None:
        value = self._data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong_type(key, "an integer", value)
        self._check_range(key, value, low, high)
        return value

    def number(self, key: str, default: float, low: float, high: float, above: bool = False) -> float:
        """`above`: the lower limit itself is not allowed."""
        value = self._data.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong_type(key, "a number", value)
        if above and value <= low:
            self.wrong_value(key, f"must be above {low:g}, but got {_shown(value)}")
        self._check_range(key, value, low, high)
        return float(value)

    def text(self, key: str) -> str | None:
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.wrong_type(key, "a string", value)
        return clean_text(value, self.name(key))

    def items(self, key: str) -> list[object] | None:
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            self.wrong_type(key, "an array", value)
        return value

    def group(self, key: str) -> "Fields | None":
        value = self.mapping(key)
        return None if value is None else Fields(value, self.name(key))

    def mapping(self, key: str) -> Mapping[str, object] | None:
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.wrong_type(key, "an object", value)
        return value

    def wrong_type(self, key: str, expected: str, value: object) -> NoReturn:
        raise wrong_type(self.name(key), expected, value)

    def wrong_value(self, key: str, problem: str) -> NoReturn:
        raise wrong_value(self.name(key), problem)

    def missing(self, key: str) -> NoReturn:
        name = self.name(key)
        raise InvalidInput(f"Missing required parameter: '{name}'.", name, "missing_required_parameter")

    def _check_range(self, key: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            self.wrong_value(key, f"must be between {_shown(low)} and {_shown(high)}, but got {_shown(value)}")


def wrong_type(name: str, expected: str, value: object) -> InvalidInput:
    message = f"Invalid type for '{name}': expected {expected}, but got {kind_of(value)} instead."
    return InvalidInput(message, name, "invalid_type")


def wrong_value(name: str, problem: str) -> InvalidInput:
    return InvalidInput(f"Invalid value for '{name}': {problem}.", name, "invalid_value")


def clean_text(value: str, name: str) -> str:
    """JSON can spell half of a surrogate pair, which no tokenizer takes."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise wrong_value(name, "holds an unpaired surrogate") from error
    return value


def kind_of(value: object) -> str:
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "a boolean"),
        (int, "an integer"),
        (float, "a number"),
        (str, "a string"),
        (list, "an array"),
        (dict, "an object"),
    )
    return next((kind for python_type, kind in kinds if isinstance(value, python_type)), "null")


def _shown(value: float) -> str:
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else "a very large number"
    return f"{value:g}"
