"""A small cluster for the stepwise planner: pods start, fail, find no node and drain; a user changes everything."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from kvarn_operator.resources.model_service import Rollout
from kvarn_operator.rollout.layouts import layout_classes
from kvarn_operator.rollout.progress import Gate, PodGroup, PoolProgress, PoolStep
from kvarn_operator.rollout.steps import next_steps
from kvarn_operator.scaling.spec import Role

SERVING, STARTING, LAPSED, UNSCHEDULABLE, DRAINING = "serving", "starting", "lapsed", "unschedulable", "draining"


@dataclass
class Pod:
    revision: str
    pairing: str
    state: str


@dataclass
class Pool:
    role: Role
    target: int
    revision: str
    pairing: str
    pods: list[Pod] = field(default_factory=list)

    def progress(self) -> PoolProgress:
        keys = sorted({(pod.revision, pod.pairing) for pod in self.pods if pod.state != DRAINING})
        groups = tuple(
            PodGroup(*key, *(self.count(state, *key) for state in (SERVING, STARTING, UNSCHEDULABLE, LAPSED)))
            for key in keys
        )
        return PoolProgress(self.role, self.target, self.revision, self.pairing, groups, self.count(DRAINING))

    def count(self, state: str, revision: str = "", pairing: str = "") -> int:
        return sum(
            pod.state == state and revision in ("", pod.revision) and pairing in ("", pod.pairing) for pod in self.pods
        )

    @property
    def staying(self) -> int:
        return len(self.pods) - self.count(DRAINING)

    @property
    def done(self) -> bool:
        wanted = Pod(self.revision, self.pairing, SERVING)
        return [(pod.revision, pod.state) for pod in self.pods] == [(wanted.revision, SERVING)] * self.target


@dataclass
class Cluster:
    pools: list[Pool]
    rollout: Rollout
    nodes: int
    """Pods that can run at a time, draining ones included."""

    broken: frozenset[str] = frozenset()
    """Revisions whose pods never become ready."""

    def act(self) -> tuple[PoolStep, ...]:
        """One reconcile, checked against everything that must hold."""
        before = [pool.progress() for pool in self.pools]
        steps = next_steps(before, self.rollout)
        for pool, step in zip(self.pools, steps, strict=True):
            assert step.role is pool.role
            for drain in step.drain:
                self._drain(pool, drain.revision, drain.pairing, drain.count)
            for _ in range(step.create):
                state = STARTING if self.free > 0 else UNSCHEDULABLE
                pool.pods.append(Pod(pool.revision, pool.pairing, state))
        check(before, [pool.progress() for pool in self.pools], steps, self.rollout)
        return steps

    def _drain(self, pool: Pool, revision: str, pairing: str, count: int) -> None:
        """Idle ones first, as `choose_victims` has it."""
        assert count > 0
        group = [pod for pod in pool.pods if (pod.revision, pod.pairing) == (revision, pairing)]
        candidates = [
            pod for state in (UNSCHEDULABLE, STARTING, LAPSED, SERVING) for pod in group if pod.state == state
        ]
        assert len(candidates) >= count
        for pod in candidates[:count]:
            if pod.state == UNSCHEDULABLE:
                pool.pods.remove(pod)
            pod.state = DRAINING

    @property
    def free(self) -> int:
        return self.nodes - sum(pod.state != UNSCHEDULABLE for pool in self.pools for pod in pool.pods)

    @property
    def done(self) -> bool:
        return all(pool.done for pool in self.pools)

    def schedule(self) -> None:
        for pod in self.of_state(UNSCHEDULABLE):
            if self.free > 0:
                pod.state = STARTING

    def start(self, most: int = 1000) -> None:
        pods = [pod for pod in self.of_state(STARTING) if pod.revision not in self.broken]
        for pod in pods[:most]:
            pod.state = SERVING

    def finish_drains(self, most: int = 1000) -> None:
        for pool in self.pools:
            for pod in [pod for pod in pool.pods if pod.state == DRAINING][:most]:
                pool.pods.remove(pod)

    def lapse(self, number: int) -> None:
        """A serving pod is not ready for a while."""
        self._change(SERVING, LAPSED, number)

    def recover(self, number: int) -> None:
        self._change(LAPSED, SERVING, number)

    def crash(self, number: int) -> None:
        self._change(SERVING, STARTING, number)

    def _change(self, before: str, after: str, number: int) -> None:
        pods = list(self.of_state(before))
        if pods:
            pods[number % len(pods)].state = after

    def lose(self, number: int) -> None:
        """A pod is gone, with its node or by someone's hand."""
        pool = self.pools[number % len(self.pools)]
        if pool.pods:
            pool.pods.pop(number % len(pool.pods))

    def of_state(self, state: str) -> list[Pod]:
        """Of one pool after the other; both start and schedule in that order."""
        return [pod for pool in self.pools for pod in pool.pods if pod.state == state]

    def settle(self, ticks: int = 200) -> tuple[PoolStep, ...]:
        """Nothing bad happens any more, but old pods that lapsed stay so: nothing may wait for them. Returns the steps
        of the last reconcile, which change nothing."""
        for _ in range(ticks):
            for pool in self.pools:
                for pod in pool.pods:
                    if pod.state == LAPSED and pod.revision == pool.revision:
                        pod.state = SERVING
            steps = self.act()
            idle = not any(step.create or step.drain for step in steps)
            if idle and not self.count(DRAINING) and not (self.free > 0 and self.count(UNSCHEDULABLE)):
                startable = [pod for pod in self.of_state(STARTING) if pod.revision not in self.broken]
                if not startable:
                    return steps
            self.start()
            self.finish_drains()
            self.schedule()
        raise AssertionError(f"still busy after {ticks} ticks: {self}")

    def count(self, state: str) -> int:
        return sum(pool.count(state) for pool in self.pools)


def classes_of(pools: Iterable[PoolProgress]) -> Mapping[str, str]:
    known = list(pools)
    return layout_classes({pool.pairing for pool in known} | {g.pairing for pool in known for g in pool.groups})


def shares(pools: Iterable[PoolProgress], lapsed: bool = False) -> dict[str, Fraction]:
    """What each layout's pairs can serve of the whole, of pools that are wanted at all; surplus does not count."""
    wanted = [pool for pool in pools if pool.target > 0]
    classes = classes_of(wanted)
    found = {}
    for layout in set(classes.values()):
        counts = [
            sum(g.serving + g.lapsed * lapsed for g in pool.groups if classes[g.pairing] == layout) for pool in wanted
        ]
        found[layout] = min(Fraction(n, pool.target) for n, pool in zip(counts, wanted, strict=True))
    return found


def check(before: list[PoolProgress], after: list[PoolProgress], steps: tuple[PoolStep, ...], rollout: Rollout) -> None:
    for old, new, step in zip(before, after, steps, strict=True):
        check_pool(before, old, new, step, rollout)
    check_pair(before, after, rollout)
    check_capacity(before, after, rollout)
    check_ratio(before, after, steps, rollout)


def check_pool(
    pools: list[PoolProgress], before: PoolProgress, after: PoolProgress, step: PoolStep, rollout: Rollout
) -> None:
    limit = before.target + rollout.max_surge if before.target else 0
    assert after.total <= max(limit, before.total)
    assert step.create == 0 or after.total <= limit
    assert after.current.total <= before.target
    assert not any(group.idle > group.lapsed for group in after.old), "an old pod that serves nobody stays"
    needed = max(0, before.target - rollout.max_unavailable - after.serving)
    assert sum(group.lapsed for group in after.old) <= needed
    if step.gate is not Gate.NONE:
        assert step.create == 0
        assert step.drain == ()
        assert step.message
    floor = before.target - rollout.max_unavailable
    given_up = 1 if before.target and serves_nobody(pools, before) else 0
    assert after.serving >= min(before.serving - given_up, floor)


def serves_nobody(pools: list[PoolProgress], pool: PoolProgress) -> bool:
    """No pair of any layout serves, and a new pod of this pool finds no node."""
    return pool.current.unschedulable > 0 and not any(shares(pools, lapsed=True).values())


def check_pair(before: list[PoolProgress], after: list[PoolProgress], rollout: Rollout) -> None:
    """Once a pair serves, one does at every moment; unless the user lets a pool have none, and it has no other way."""
    wanted = [pool for pool in before if pool.target > 0]
    no_node = any(pool.current.unschedulable for pool in wanted)
    last_resort = any(
        rollout.max_unavailable >= pool.target and (no_node or (rollout.max_surge == 0 and pool.target == 1))
        for pool in wanted
    )
    if wanted and any(shares(before).values()) and not last_resort:
        assert any(shares(after).values()), "no pair serves any more"


def check_capacity(before: list[PoolProgress], after: list[PoolProgress], rollout: Rollout) -> None:
    """With nothing allowed to be unavailable, whole pairs serve all that they served, up to what is wanted."""
    wanted = [pool for pool in before if pool.target > 0]
    layouts = {layout for pool in wanted for layout in classes_of(wanted).values()}
    if rollout.max_unavailable or len(layouts) > 2 or any(serves_nobody(before, pool) for pool in wanted):
        return
    assert min(1, sum(shares(after).values())) >= min(1, sum(shares(before).values()))


def check_ratio(
    before: list[PoolProgress], after: list[PoolProgress], steps: tuple[PoolStep, ...], rollout: Rollout
) -> None:
    """Where the ratio is out of its tolerance, the pool that is too small gave up no more than one serving pod."""
    if any(pool.target == 0 for pool in before):
        return
    sizes = {pool.role: min(1.0, pool.serving / pool.target) for pool in after}
    prefill, decode = sizes[Role.PREFILL], sizes[Role.DECODE]
    short = None
    if prefill < decode * (1 - rollout.ratio_tolerance) - 1e-9:
        short = Role.PREFILL
    elif prefill > decode * (1 + rollout.ratio_tolerance) + 1e-9:
        short = Role.DECODE
    for old, new in zip(before, after, strict=True):
        if new.role is short and old.serving <= old.target:
            assert old.serving - new.serving <= 1
