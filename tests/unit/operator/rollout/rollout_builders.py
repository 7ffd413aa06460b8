"""Short ways to say what the stepwise planner sees: pools in counts, and pods."""

from kvarn_operator.resources.model_service import Rollout
from kvarn_operator.resources.worker_pool import PodProblem, WorkerPod
from kvarn_operator.rollout.progress import PodGroup, PoolProgress, PoolStep
from kvarn_operator.rollout.steps import next_steps
from kvarn_operator.scaling.observation import PodPhase
from kvarn_operator.scaling.spec import PodName, PoolName, Role

P, D = Role.PREFILL, Role.DECODE
SAME, OTHER, THIRD = "l-1-1", "m-1-1", "n-1-1"
"""Pairings; the wanted one is SAME."""

SURGE = Rollout(max_surge=1, max_unavailable=0)
IN_PLACE = Rollout(max_surge=0, max_unavailable=1)


def group(revision: str = "new", pairing: str = SAME, serving: int = 0, **counts: int) -> PodGroup:
    return PodGroup(revision, pairing, serving, **counts)


def old(serving: int = 0, pairing: str = OTHER, revision: str = "old", **counts: int) -> PodGroup:
    return group(revision, pairing, serving, **counts)


def pool(role: Role, target: int, *groups: PodGroup, draining: int = 0) -> PoolProgress:
    return PoolProgress(role, target, "new", SAME, groups, draining)


def step(rollout: Rollout, *pools: PoolProgress) -> PoolStep:
    """Of the first pool."""
    return next_steps(pools, rollout)[0]


def does(found: PoolStep) -> tuple[int, dict[str, int]]:
    """What it creates, and drains of each revision."""
    return found.create, {drain.revision: drain.count for drain in found.drain}


def pod(name: str, **changes: object) -> WorkerPod:
    """Serves, in revision `new`."""
    values: dict[str, object] = {
        "name": PodName(name), "uid": f"uid-{name}", "pool": PoolName("m-decode"), "role": D, "revision": "new",
        "pairing": SAME, "phase": PodPhase.READY, "ready": True, "terminating": False, "created_at": 0.0,
    }  # fmt: skip
    return WorkerPod(**{**values, **changes})  # type: ignore[arg-type]


def waiting(name: str, problem: PodProblem = PodProblem.NONE, **changes: object) -> WorkerPod:
    phase = PodPhase.UNSCHEDULABLE if problem is PodProblem.UNSCHEDULABLE else PodPhase.PENDING
    return pod(name, phase=phase, ready=False, problem=problem, **changes)
