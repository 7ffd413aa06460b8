"""What makes two pods equal (the revision), and what lets two pods exchange KV blocks (the pairing).

Called by the pod builder and the reconcile. Both are hashes of what the user and the operator's settings say, never of
a rendered pod, and leave out what has its default: an operator that renders differently, or knows one more option,
changes neither, so upgrading it restarts no worker.
"""

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.model_service import EngineOptions, ModelServiceSpec
from kvarn_operator.resources.pool_template import PodTemplate, Pool
from kvarn_operator.scaling.spec import Role

_REVISION_LENGTH = 10
_PAIRING_LENGTH = 8

_SETTING_PREFIX = "KVARN_"


def pod_revision(spec: ModelServiceSpec, role: Role, defaults: OperatorDefaults) -> str:
    """Short and alphanumeric: it is part of pod names. Leaves out what no pod is made from, such as replicas."""
    pool = pool_spec(spec, role)
    said = {
        "model": {name: value for name, value in _said(spec.model).items() if name != "served_names"},
        "engine": _said(spec.engine),
        "drain": _said(pool.drain),
        "template": _said(pool.template),
        "defaults": _used_defaults(pool.template, defaults),
    }
    return _digest(said, _REVISION_LENGTH)


def pairing(spec: ModelServiceSpec, defaults: OperatorDefaults) -> str:
    """`layout-prefill-decode`: what both pools share, and what each adds by its image and flags. See `layouts`."""
    engine = EngineOptions(engine=spec.engine.engine, dtype=spec.engine.dtype, block_size=spec.engine.block_size)
    shared = {"source": _said(spec.model.source), "revision": spec.model.revision, "engine": _said(engine)}
    sides = (_side(spec.prefill.template, defaults), _side(spec.decode.template, defaults))
    return "-".join(_digest(part, _PAIRING_LENGTH) for part in (shared, *sides))


def pool_spec(spec: ModelServiceSpec, role: Role) -> Pool:
    return spec.prefill if role is Role.PREFILL else spec.decode


def _side(template: PodTemplate, defaults: OperatorDefaults) -> dict[str, object]:
    """Any flag may matter, and a variable of that name is one."""
    variables = [each for each in template.env if each["name"].startswith(_SETTING_PREFIX)]
    return {
        "image": template.image.reference or defaults.worker_image,
        "args": sorted(list(arg) for arg in template.args),
        "env": sorted(variables, key=lambda each: str(each["name"])),
    }


def _used_defaults(template: PodTemplate, defaults: OperatorDefaults) -> dict[str, object]:
    """Of the operator's settings, those that the template leaves to it; unset ones are left out."""
    used: dict[str, object] = {
        "worker_image": "" if template.image.reference else defaults.worker_image,
        "image_pull_policy": "" if template.image.pull_policy else defaults.image_pull_policy,
        "image_pull_secrets": list(defaults.image_pull_secrets),
        "tls_secret": defaults.tls_secret,
        "worker_service_account": "" if template.service_account_name else defaults.worker_service_account,
        "log_json": defaults.log_json,
        "priority_class_name": "" if template.placement.priority_class_name else defaults.priority_class_name,
    }
    return {name: value for name, value in used.items() if value}


def _said(value: object) -> dict[str, object]:
    """A dataclass without the fields that have their default, all the way down."""
    assert is_dataclass(value)
    plain = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    defaults = {each.name: _default(each) for each in fields(value)}
    return {name: plain[name] for name in plain if _present(plain[name]) != _present(_plain(defaults[name]))}


def _plain(value: Any) -> Any:
    """300 and 300.0 are one number."""
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value):
        return _said(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _present(plain: Any) -> Any:
    """An absent part and an empty one are the same."""
    return None if isinstance(plain, dict | list | str) and not plain else plain


def _default(each: "Field[Any]") -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return None if each.default is MISSING else each.default


def _digest(said: Mapping[str, object], length: int) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode()).hexdigest()[:length]
