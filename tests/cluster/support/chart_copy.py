"""A later release of the chart, made from this one: what an upgrade goes to. Its ModelService has one field more."""

import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.support.helm import CHART

LATER_FIELD = "laterField"


def copy_of_chart(folder: Path, version: str) -> Path:
    copy = folder / f"kvarn-{version}"
    shutil.copytree(CHART, copy)
    facts = copy / "Chart.yaml"
    facts.write_text(re.sub(r"(?m)^(version|appVersion):.*$", rf'\1: "{version}"', facts.read_text()))
    crd = copy / "crds" / "modelservices.kvarn.dev.yaml"
    definition = yaml.safe_load(crd.read_text())
    fields_of(definition)[LATER_FIELD] = {"type": "string"}
    crd.write_text(yaml.safe_dump(definition))
    return copy


def fields_of(definition: Any) -> Any:
    """What a spec may hold, by a CRD as a chart or a cluster has it."""
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
