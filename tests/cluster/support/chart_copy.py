"""Another release of the chart, made from this one: what an upgrade goes to."""

import re
import shutil
from pathlib import Path

from tests.cluster.support.helm import CHART


def copy_of_chart(folder: Path, version: str) -> Path:
    copy = folder / f"kvarn-{version}"
    shutil.copytree(CHART, copy)
    facts = copy / "Chart.yaml"
    facts.write_text(re.sub(r"(?m)^(version|appVersion):.*$", rf'\1: "{version}"', facts.read_text()))
    return copy
