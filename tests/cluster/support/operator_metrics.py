"""What a running operator counts about itself."""

from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.support.operator_process import OperatorProcess


@dataclass(frozen=True, slots=True)
class Counted:
    """One look at the metrics: counters by name and labels."""

    samples: tuple[tuple[str, tuple[tuple[str, str], ...], float], ...]

    def total(self, name: str, **labels: str) -> float:
        wanted = labels.items()
        return sum(value for sample, found, value in self.samples if sample == name and wanted <= dict(found).items())

    def since(self, before: "Counted") -> "Counted":
        known = {(name, labels): value for name, labels, value in before.samples}
        grown = ((name, labels, value - known.get((name, labels), 0.0)) for name, labels, value in self.samples)
        return Counted(tuple(each for each in grown if each[2] != 0))

    def by(self, name: str, *keys: str) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for sample, labels, value in self.samples:
            if sample == name:
                place = tuple(dict(labels)[key] for key in keys)
                found[place] = found.get(place, 0.0) + value
        return found


def counted(operator: OperatorProcess) -> Counted:
    text = httpx.get(operator.metrics_url, timeout=30).raise_for_status().text
    return Counted(
        tuple(
            (sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        )
    )
