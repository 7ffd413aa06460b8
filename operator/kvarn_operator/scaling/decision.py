"""The record of one decision: every term that led to it. Goes to `status.decisions` and into Events."""

import enum
from dataclasses import dataclass

from kvarn_operator.scaling.spec import PoolName, Role, ScalingMode


class Reason(enum.Enum):
    """Why the target is what it is; the last step that changed it. CamelCase, as Kubernetes wants reasons."""

    MANUAL = "Manual"
    EXTERNAL = "External"
    LOAD = "Load"
    AT_TARGET = "AtTarget"
    MINIMUM = "Minimum"
    MAXIMUM = "Maximum"
    IDLE = "Idle"
    WAKE = "Wake"
    KEPT_WARM = "KeptWarm"
    METRICS_MISSING = "MetricsMissing"
    OBJECTIVE_MISSED = "ObjectiveMissed"
    STABILISING = "Stabilising"
    RATE_LIMITED = "RateLimited"
    OVERRIDE = "Override"
    BUDGET = "Budget"
    BUDGET_WAIT = "BudgetWait"
    """The budget allows it once pods of the other pool are gone."""


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Step:
    """One rule that changed the number, in the order they were applied."""

    reason: Reason
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Override:
    replicas: int
    writer: str
    until: float


@dataclass(frozen=True, slots=True)
class Decision:
    pool: PoolName
    role: Role
    mode: ScalingMode
    at: float
    current: int
    wanted: int
    """What the law alone says."""

    target: int
    steps: tuple[Step, ...]
    terms: tuple[Term, ...]
    override: Override | None = None

    @property
    def reason(self) -> Reason:
        if self.override is not None and self.target == self.override.replicas:
            return Reason.OVERRIDE
        if self.steps:
            return self.steps[-1].reason
        return Reason.AT_TARGET if self.target == self.current else Reason.LOAD

    @property
    def message(self) -> str:
        terms = ", ".join(f"{term.name}={term.value:g}" for term in self.terms)
        steps = "".join(f"; {step.reason.value} {step.before}->{step.after}" for step in self.steps)
        held = ""
        if self.override is not None:
            held = f"; set by {self.override.writer} for {self.override.until - self.at:.0f} s more"
        return f"{self.role.value} {self.current}->{self.target}, law {self.wanted} ({terms}){steps}{held}"
