"""Every field of every rendered object is one that Kubernetes has, by its own client: a server drops the others."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import models

from tests.chart.rendering import Body, Helm, name_of, rendered

FOREIGN = frozenset({"kvarn.dev", "monitoring.coreos.com", "cert-manager.io", "gateway.networking.k8s.io"})


def model_of(body: Body) -> str | None:
    """Name of the client's class, or None for a kind of somebody else."""
    group, _, version = str(body["apiVersion"]).rpartition("/")
    if group in FOREIGN:
        return None
    return f"{(version or group).capitalize()}{body['kind']}"


def unknown(node: Any, kind: str, path: str) -> Iterator[str]:
    """Paths of fields that are not known, and of values of another shape."""
    if (inner := re.fullmatch(r"[Ll]ist\[(.+)\]", kind)) is not None:
        for number, each in enumerate(node) if isinstance(node, list) else [(0, None)]:
            yield from unknown(each, inner[1], f"{path}.{number}")
        return
    cls = getattr(models, kind, None)
    if cls is None:  # str, int, object, dict(str, str)
        return
    if not isinstance(node, dict):
        yield path
        return
    fields = {cls.attribute_map[name]: type_ for name, type_ in cls.openapi_types.items()}
    for key, value in node.items():
        if key not in fields:
            yield f"{path}.{key}"
        else:
            yield from unknown(value, fields[key], f"{path}.{key}")


def test_the_check_itself_finds_what_is_wrong() -> None:
    spec = {"containers": [{"name": "a", "imagee": "b", "ports": {"containerPort": 1}}], "hostNetwork": True}
    found = list(unknown({"spec": spec, "metadata": {"labels": {"any": "key"}}}, "V1Pod", "pod"))
    assert found == ["pod.spec.containers.0.imagee", "pod.spec.containers.0.ports.0"]


@pytest.mark.parametrize("version", ["1.30.0", "1.37.0"])
def test_every_field_exists(helm: Helm, values: str, version: str) -> None:
    known = {name_of(body): model_of(body) for body in rendered(helm, values, version)}
    assert [name for name, kind in known.items() if kind is not None and not hasattr(models, kind)] == []
    assert len([kind for kind in known.values() if kind]) > 10
    for body in rendered(helm, values, version):
        if (kind := model_of(body)) is not None:
            assert list(unknown(body, kind, name_of(body))) == []
