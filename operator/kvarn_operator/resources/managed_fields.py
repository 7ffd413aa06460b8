"""Who wrote a field of an object last, and when: `metadata.managedFields`, read. Called by the parsers."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.times import seconds_or


@dataclass(frozen=True, slots=True)
class Owner:
    manager: str
    at: float
    """Whole seconds; of the manager's last change, which may have been to another field of the object."""


def owners(metadata: Fields, *path: str) -> Iterator[Owner]:
    """Several own a field when they wrote the same value. API servers before 1.22 leave out writes to `/scale`."""
    for entry in metadata.sections("managedFields"):
        place = entry.section("fieldsV1")
        for name in path[:-1]:
            place = place.section(f"f:{name}")
        if f"f:{path[-1]}" in place.values:
            yield Owner(entry.text("manager") or "unknown", seconds_or(entry.values.get("time"), 0.0))


def last_owner(metadata: Fields, *path: str) -> Owner | None:
    return max(owners(metadata, *path), key=lambda owner: owner.at, default=None)
