"""The stepwise planner against random clusters: its promises hold at every step, and it ends where it can."""

from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kvarn_operator.resources.model_service import Rollout
from kvarn_operator.rollout.progress import Gate
from kvarn_operator.scaling.spec import Role

from tests.property.rollout_simulation import SERVING, UNSCHEDULABLE, Cluster, Pod, Pool

PAIRINGS = {"a": "a-1-1", "b": "b-1-1", "c": "b-2-1", "d": "b-2-2"}
"""Revision `b` and `c` go together, `c` and `d` too; the others do not."""


@dataclass(frozen=True)
class Event:
    kind: str
    number: int = 0
    revision: str = "a"
    both: bool = True
    """A change of what both pools share, or of one pool's template only."""


def events(*kinds: str) -> st.SearchStrategy[list[Event]]:
    one = st.builds(
        Event, kind=st.sampled_from(kinds), number=st.integers(0, 6),
        revision=st.sampled_from("abcd"), both=st.booleans(),
    )  # fmt: skip
    return st.lists(one, max_size=25)


rollouts = st.builds(
    Rollout, max_surge=st.integers(0, 3), max_unavailable=st.integers(0, 3),
    ratio_tolerance=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
).filter(lambda rollout: rollout.max_surge + rollout.max_unavailable > 0)  # fmt: skip
targets = st.tuples(st.integers(0, 5), st.integers(0, 5))
USER = ("change", "scale")
WORLD = ("start", "finish", "schedule", "start", "finish", "schedule", "lapse", "recover", "crash", "lose")


def cluster(sizes: tuple[int, int], rollout: Rollout, nodes: int) -> Cluster:
    pools = [
        Pool(role, target, "a", PAIRINGS["a"], [Pod("a", PAIRINGS["a"], SERVING) for _ in range(target)])
        for role, target in zip(Role, sizes, strict=True)
    ]
    return Cluster(pools, rollout, nodes)


def happen(found: Cluster, event: Event) -> None:
    pool = found.pools[event.number % 2]
    if event.kind == "change":
        for each in found.pools if event.both else [pool]:
            each.revision = event.revision if event.both else each.revision + "x"
            each.pairing = PAIRINGS[event.revision] if event.both else each.pairing
    elif event.kind == "scale":
        pool.target = event.number
    elif event.kind in ("start", "finish"):
        found.start(most=1) if event.kind == "start" else found.finish_drains(most=1)
    elif event.kind == "schedule":
        found.schedule()
    else:
        act = {"lapse": found.lapse, "recover": found.recover, "crash": found.crash, "lose": found.lose}[event.kind]
        act(event.number)


def run(found: Cluster, story: list[Event]) -> None:
    for event in story:
        happen(found, event)
        found.act()


@given(targets, rollouts, events(*USER, *WORLD))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_with_room_every_story_ends_in_the_wanted_pods(
    sizes: tuple[int, int], rollout: Rollout, story: list[Event]
) -> None:
    found = cluster(sizes, rollout, nodes=1000)
    run(found, story)
    steps = found.settle()
    assert found.done, found
    assert [step.gate for step in steps] == [Gate.NONE, Gate.NONE]


@given(targets, rollouts, events(*USER, *WORLD), st.integers(0, 3))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_with_few_nodes_it_ends_or_says_who_is_blocked(
    sizes: tuple[int, int], rollout: Rollout, story: list[Event], spare: int
) -> None:
    found = cluster(sizes, rollout, nodes=sum(sizes) + spare)
    run(found, story)
    steps = found.settle()
    enough = found.nodes >= sum(pool.target for pool in found.pools)
    if found.done:
        return
    assert any(step.blocked for step in steps), (found, steps)
    assert found.count(UNSCHEDULABLE) > 0
    if enough:
        assert rollout.max_unavailable == 0, (found, steps)


@given(targets, rollouts, events("start", "finish", "schedule"))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_a_broken_revision_never_takes_the_service_down_and_is_rolled_back(
    sizes: tuple[int, int], rollout: Rollout, story: list[Event]
) -> None:
    found = cluster(sizes, rollout, nodes=1000)
    found.broken = frozenset({"b"})
    happen(found, Event("change", revision="b"))
    run(found, story)
    for pool in found.pools:
        assert pool.count(SERVING) >= min(pool.target, max(pool.target - rollout.max_unavailable, 0))
    happen(found, Event("change", revision="a"))
    found.settle()
    assert found.done, found


@given(
    st.sampled_from([(4, 8), (8, 4), (3, 9), (6, 6)]),
    st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 0.25, 0.5]), st.sampled_from("bc"),
    st.lists(st.sampled_from(["start", "finish"]), max_size=120),
)  # fmt: skip
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_ratio_of_what_serves_stays_within_a_pod_of_its_tolerance(
    sizes: tuple[int, int], surge: int, unavailable: int, tolerance: float, revision: str, story: list[str]
) -> None:
    """Through a whole rollout, by an own count: one pod more in the pool that is short would be enough. As long as the
    pods of both pools start alike, that is; what the planner gives up is all that it decides."""
    assume(surge + unavailable > 0)
    found = cluster(sizes, Rollout(surge, unavailable, tolerance), nodes=1000)
    happen(found, Event("change", revision=revision))
    for kind in story:
        found.act()
        found.start() if kind == "start" else found.finish_drains()
        shares = [(pool.count(SERVING), pool.target) for pool in found.pools]
        (short, short_target), (long, long_target) = sorted(shares, key=lambda share: min(1.0, share[0] / share[1]))
        short_share, long_share = (short + 1) / short_target, min(1.0, long / long_target)
        assert short_share >= long_share * (1 - tolerance)
