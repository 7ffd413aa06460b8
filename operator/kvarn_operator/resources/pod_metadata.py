"""Labels and annotations that a user adds to pods, checked. Called by the parsers of `template` and `podTemplate`."""

import re

from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.labels import COMPONENT_LABEL, DELETION_COST_ANNOTATION, GROUP, MANAGED_BY_LABEL

MAX_ENTRIES = 64
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

_OWN = frozenset({COMPONENT_LABEL, MANAGED_BY_LABEL, DELETION_COST_ANNOTATION})


def read_labels(fields: Fields) -> tuple[tuple[str, str], ...]:
    labels = _read(fields, "labels")
    for name, value in labels:
        if LABEL_VALUE.fullmatch(value) is None:
            raise fields.error(f"labels.{name}", f"{value!r} is no label value: 63 letters, digits, dots or dashes")
    return labels


def read_annotations(fields: Fields) -> tuple[tuple[str, str], ...]:
    return _read(fields, "annotations")


def _read(fields: Fields, kind: str) -> tuple[tuple[str, str], ...]:
    pairs = fields.text_map(kind)
    if len(pairs) > MAX_ENTRIES:
        raise fields.error(kind, f"has {len(pairs)} entries, at most {MAX_ENTRIES} are allowed")
    for name, _ in pairs:
        if name.startswith(f"{GROUP}/") or name in _OWN:
            raise fields.error(f"{kind}.{name}", "belongs to the operator, which knows its pods by it")
        if KEY.fullmatch(name) is None:
            raise fields.error(f"{kind}.{name}", "is no name that Kubernetes takes")
    return pairs
