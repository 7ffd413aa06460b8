"""What the planner remembers survives in the status, is written seldom, and garbage there does no harm."""

import json
from dataclasses import replace

import pytest
from kvarn_operator.reconcile.memory_json import restored, to_save
from kvarn_operator.scaling.decision import Override
from kvarn_operator.scaling.memory import PoolMemory, Sample
from kvarn_operator.scaling.observation import ReplicasWrite
from kvarn_operator.scaling.spec import Behaviour, PoolName, PoolScaling, Role, ScalingMode
from kvarn_operator.scaling.stabilisation import rate_limited, stabilised

NOW = 1000.0


def spec(**changes: object) -> PoolScaling:
    values: dict[str, object] = {"pool": PoolName("decode"), "role": Role.DECODE, "minimum": 1, "maximum": 9}
    return PoolScaling(**{**values, **changes})  # type: ignore[arg-type]


def wanting(saved: object, value: int, now: float, scaling: PoolScaling | None = None) -> object:
    """One call of the planner, as far as memory goes."""
    memory = restored(saved, 1, now) or PoolMemory(wanted=(Sample(now, 1),))
    return to_save(PoolMemory((*memory.wanted, Sample(now, value))), saved, scaling or spec(), now)


def test_a_round_trip() -> None:
    memory = PoolMemory(
        (Sample(NOW, 2),), (Sample(NOW, 1),), None, 512.5, ReplicasWrite("kubectl", 7.0, foreign=True),
        Override(3, "kubectl", 1900.0),
    )  # fmt: skip
    saved = json.loads(json.dumps(to_save(memory, None, spec(), NOW)))
    assert restored(saved, 9, NOW) == memory


def test_nothing_saved_is_no_memory() -> None:
    assert restored(None, 1, NOW) is None
    assert restored({}, 1, NOW) is None


@pytest.mark.parametrize(
    "saved",
    [
        {"wanted": "x", "changes": {"at": 1}, "rate": "fast", "write": [], "override": {"replicas": "two"}},
        {
            "wanted": [None, 3, {"since": "x"}, {"since": 1, "low": 5, "high": 2}],
            "busyUntil": True,
            "write": {"at": "z"},
        },
        {"changes": [{"at": None, "value": 1}], "override": 7, "somethingElse": {}},
    ],
)
def test_garbage_counts_the_replicas_as_wanted_and_forgets_the_rest(saved: object) -> None:
    assert restored(saved, 4, NOW) == PoolMemory(wanted=(Sample(NOW, 4),))
    assert to_save(PoolMemory(), saved, spec(), NOW) == {}


def test_garbage_of_another_type_is_no_memory() -> None:
    for saved in ("text", 7, [1], True):
        assert restored(saved, 1, NOW) is None


def test_one_number_is_one_run_however_long_it_lasts() -> None:
    saved = wanting(None, 1, NOW)
    for second in range(1, 2000, 5):
        assert wanting(saved, 1, NOW + second) == saved


def test_what_was_wanted_within_the_window_holds_a_decrease_and_no_longer() -> None:
    behaviour = Behaviour(down_window_s=300.0)
    saved = wanting(None, 4, NOW)
    for second in range(5, 100, 5):
        saved = wanting(saved, 4, NOW + second)
    for second in range(100, 600, 5):
        saved = wanting(saved, 2, NOW + second)
        memory = restored(saved, 4, NOW + second)
        assert memory is not None
        held = stabilised(behaviour, memory, 4, 2, NOW + second)
        assert held == (4 if second <= 395 else 2), second
    assert saved["wanted"] != []  # type: ignore[index]


def test_after_the_clock_was_set_back_nothing_holds_longer_than_its_window() -> None:
    """Kept for at most a window after the jump, and written so that the window ends."""
    idle, behaviour = spec(minimum=0, zero_after_s=600.0), Behaviour(down_window_s=300.0)
    memory = PoolMemory((Sample(NOW, 4),), (Sample(NOW, 2),), busy_at=NOW)
    saved: object = to_save(memory, None, idle, NOW)
    before = NOW - 86_400
    for second in range(0, 700, 5):
        found = restored(saved, 4, before + second)
        assert found is not None
        seen = replace(found, wanted=(*found.wanted, Sample(before + second, 2)))
        saved = to_save(seen, saved, idle, before + second)
    found = restored(saved, 4, before + 700)
    assert found is not None
    assert stabilised(behaviour, found, 4, 2, before + 700) == 2
    assert rate_limited(behaviour, found, 4, 8, before + 700) == 8
    assert found.busy_at is not None
    assert found.busy_at <= before + 60


def test_numbers_that_waver_are_one_run_for_a_minute() -> None:
    saved = wanting(None, 3, NOW)
    writes = 0
    for second in range(5, 605, 5):
        after = wanting(saved, 2 + second % 2, NOW + second)
        writes += after != saved
        saved = after
    assert writes <= 2 * 10 + 1
    assert len(saved["wanted"]) <= 300 / 60 + 2, "no more than the window needs"  # type: ignore[index]


def test_outside_slo_mode_no_run_is_kept() -> None:
    assert wanting(None, 3, NOW, spec(mode=ScalingMode.MANUAL)) == {}


def test_a_rate_is_written_when_it_moved() -> None:
    saved = to_save(PoolMemory(rate=100.0), None, spec(), NOW)
    assert to_save(PoolMemory(rate=115.0), saved, spec(), NOW)["rate"] == 100.0
    assert to_save(PoolMemory(rate=130.0), saved, spec(), NOW)["rate"] == 130.0


def test_changes_that_no_window_needs_go_with_the_next_one() -> None:
    saved = to_save(PoolMemory(changes=(Sample(NOW, 2),)), None, spec(), NOW)
    later = to_save(PoolMemory(), saved, spec(), NOW + 100)
    assert later == saved
    assert to_save(PoolMemory(changes=(Sample(NOW + 200, -1),)), saved, spec(), NOW + 200)["changes"] == [
        {"at": NOW + 200, "value": -1}
    ]


def test_busy_is_written_a_tenth_of_the_idle_time_apart_and_never_too_early() -> None:
    idle = spec(minimum=0, zero_after_s=600.0)
    saved: object = None
    writes = 0
    for second in range(0, 600, 5):
        after = to_save(PoolMemory(busy_at=NOW + second), saved, idle, NOW + second)
        writes += after != saved
        saved = after
    assert writes <= 11
    memory = restored(saved, 1, NOW + 700)
    assert memory is not None
    assert memory.busy_at is not None
    assert NOW + 595 <= memory.busy_at <= NOW + 595 + 60
    assert to_save(memory, saved, idle, NOW + 700)["busyUntil"] == memory.busy_at, "idle"
    assert "busyUntil" not in to_save(PoolMemory(busy_at=NOW), None, spec(), NOW)


def test_a_busy_time_of_just_now_is_not_taken_for_load() -> None:
    memory = restored({"busyUntil": NOW}, 0, NOW)
    assert memory is not None
    assert memory.busy_at != NOW
