"""The mirror: newest version wins, own writes count at once, what is gone stays gone, lists heal, deafness shows."""

from typing import Any

from kvarn_operator.cluster.kinds import MODEL_SERVICE, POD, WORKER_POOL
from kvarn_operator.cluster.mirror import TOMBSTONE_S, Mirror, ServiceKey, Source

KEY = ServiceKey("models", "chat")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def pod(name: str, version: int, model: str = "chat", uid: str = "", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "models",
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "labels": {"kvarn.dev/model-service": model, **labels},
            "managedFields": [{"manager": "x"}],
        }
    }


def mirror() -> tuple[Mirror, list[ServiceKey], Clock]:
    heard: list[ServiceKey] = []
    clock = Clock()
    return Mirror(clock, heard.append), heard, clock


def names(held: Mirror, key: ServiceKey = KEY) -> list[str]:
    return [each["metadata"]["name"] for each in held.of(key, POD)]


def test_objects_are_found_by_their_model() -> None:
    held, heard, _ = mirror()
    service = {"metadata": {"namespace": "models", "name": "chat", "uid": "s", "resourceVersion": "1"}}
    pool = {
        "metadata": {"namespace": "models", "name": "chat-decode", "uid": "p", "resourceVersion": "2"},
        "spec": {"modelService": "chat"},
    }
    held.put(MODEL_SERVICE, service, Source.WATCH)
    held.put(WORKER_POOL, pool, Source.WATCH)
    held.put(POD, pod("b", 3), Source.WATCH)
    held.put(POD, pod("a", 4), Source.WATCH)
    held.put(POD, pod("other", 5, model="code"), Source.WATCH)
    assert names(held) == ["a", "b"]
    assert held.of(KEY, MODEL_SERVICE) == (service,)
    assert held.find(KEY, WORKER_POOL, "chat-decode") == pool
    assert held.find(KEY, WORKER_POOL, "chat-prefill") is None
    assert held.services() == (KEY, ServiceKey("models", "code"))
    assert heard == [KEY, KEY, KEY, KEY, ServiceKey("models", "code")]


def test_of_two_objects_of_one_name_the_newer_stays() -> None:
    """The first has been deleted, and the watch never told."""
    held, _, _ = mirror()
    held.put(POD, pod("a", 3, uid="first"), Source.WATCH)
    held.put(POD, pod("a", 7, uid="second"), Source.OWN_WRITE)
    assert [each["metadata"]["uid"] for each in held.of(KEY, POD)] == ["second"]
    assert not held.put(POD, pod("a", 5, uid="first"), Source.WATCH)
    assert not held.put(POD, pod("a", 4, uid="before the first"), Source.WATCH)
    assert [each["metadata"]["uid"] for each in held.of(KEY, POD)] == ["second"]


def test_a_long_model_name_is_found_under_its_label() -> None:
    held, _, _ = mirror()
    name = "m" * 100
    service = {"metadata": {"namespace": "models", "name": name, "uid": "s", "resourceVersion": "1"}}
    held.put(MODEL_SERVICE, service, Source.WATCH)
    (key,) = held.services()
    assert len(key.name) == 63
    held.put(POD, pod("a", 2, model=key.name), Source.WATCH)
    assert names(held, key) == ["a"]


def test_an_older_version_changes_nothing_and_nobody_hears_of_it() -> None:
    held, heard, _ = mirror()
    held.put(POD, pod("a", 7, marked="new"), Source.OWN_WRITE)
    heard.clear()
    held.put(POD, pod("a", 5, marked="old"), Source.WATCH)
    held.put(POD, pod("a", 7, marked="new"), Source.WATCH)
    assert held.of(KEY, POD)[0]["metadata"]["labels"]["marked"] == "new"
    assert heard == []


def test_versions_are_numbers_not_texts() -> None:
    held, _, _ = mirror()
    held.put(POD, pod("a", 99, marked="old"), Source.WATCH)
    held.put(POD, pod("a", 100, marked="new"), Source.WATCH)
    assert held.of(KEY, POD)[0]["metadata"]["labels"]["marked"] == "new"


def test_what_was_seen_deleted_does_not_come_back() -> None:
    """The answer to an own write may arrive after the watch told of the end."""
    held, heard, _ = mirror()
    held.put(POD, pod("a", 1), Source.WATCH)
    held.remove("uid-a")
    held.put(POD, pod("a", 2), Source.OWN_WRITE)
    assert names(held) == []
    assert held.services() == ()
    held.put(POD, pod("a", 3, uid="uid-second"), Source.WATCH)
    assert names(held) == ["a"]
    assert heard == [KEY, KEY, KEY]


def test_an_object_whose_label_comes_back_comes_back_too() -> None:
    """The watch tells of one that leaves the selector as of one that is deleted."""
    held, _, _ = mirror()
    held.put(POD, pod("a", 1), Source.WATCH)
    held.remove("uid-a", version=5)
    held.put(POD, pod("a", 4), Source.OWN_WRITE)
    assert names(held) == []
    held.put(POD, pod("a", 6), Source.WATCH)
    assert names(held) == ["a"]
    held.put(POD, pod("a", 7), Source.WATCH)
    assert names(held) == ["a"]


def test_what_a_list_lacked_and_a_later_watch_tells_is_there() -> None:
    held, _, _ = mirror()
    held.put(POD, pod("a", 1), Source.WATCH)
    held.reset(POD, "models", (), "10")
    assert names(held) == []
    held.put(POD, pod("a", 9), Source.WATCH)
    assert names(held) == []
    held.put(POD, pod("a", 11), Source.WATCH)
    assert names(held) == ["a"]


def test_a_list_removes_what_it_lacks_and_adds_what_it_has() -> None:
    held, _, _ = mirror()
    held.put(POD, pod("lost", 1), Source.WATCH)
    held.put(POD, pod("kept", 2), Source.WATCH)
    held.reset(POD, "models", (pod("kept", 2), pod("missed", 3)), "10")
    assert names(held) == ["kept", "missed"]


def test_a_list_older_than_an_own_creation_does_not_undo_it() -> None:
    held, _, _ = mirror()
    held.put(POD, pod("created", 12), Source.OWN_WRITE)
    held.reset(POD, "models", (), "10")
    assert names(held) == ["created"]
    held.reset(POD, "models", (), "12")
    assert names(held) == []


def test_a_list_of_one_namespace_or_kind_leaves_the_others() -> None:
    held, _, _ = mirror()
    held.put(POD, pod("a", 1), Source.WATCH)
    held.reset(POD, "elsewhere", (), "10")
    held.reset(WORKER_POOL, "", (), "10")
    assert names(held) == ["a"]
    held.reset(POD, "", (), "10")
    assert names(held) == []


def test_a_changed_label_moves_the_object_and_both_models_hear() -> None:
    held, heard, _ = mirror()
    held.put(POD, pod("a", 1), Source.WATCH)
    heard.clear()
    held.put(POD, pod("a", 2, model="code"), Source.WATCH)
    assert names(held) == []
    assert names(held, ServiceKey("models", "code")) == ["a"]
    assert heard == [KEY, ServiceKey("models", "code")]


def test_who_wrote_which_field_is_kept_of_pools_alone() -> None:
    held, _, _ = mirror()
    held.put(POD, pod("a", 1), Source.WATCH)
    assert "managedFields" not in held.of(KEY, POD)[0]["metadata"]
    pool = {"metadata": {**pod("p", 2)["metadata"]}, "spec": {"modelService": "chat"}}
    held.put(WORKER_POOL, pool, Source.WATCH)
    assert held.of(KEY, WORKER_POOL)[0]["metadata"]["managedFields"] == [{"manager": "x"}]


def test_a_watch_that_tells_is_not_deaf() -> None:
    held, _, clock = mirror()
    held.put(POD, pod("a", 1), Source.WATCH)
    held.reset(POD, "models", (pod("a", 1),), "5")
    clock.now += 1000
    assert held.untold_for_s(POD) == 0.0


def test_what_lists_show_and_the_watch_does_not_tell_grows_old() -> None:
    held, _, clock = mirror()
    held.put(POD, pod("a", 1), Source.WATCH)
    held.reset(POD, "models", (pod("a", 2),), "5")
    clock.now += 60
    held.reset(POD, "models", (pod("a", 3),), "6")
    assert held.untold_for_s(POD) == 60.0
    assert held.untold_for_s(WORKER_POOL) == 0.0
    held.put(POD, pod("a", 3), Source.WATCH)
    assert held.untold_for_s(POD) == 0.0


def test_an_own_write_that_the_watch_has_yet_to_tell_counts_from_the_first_list() -> None:
    held, _, clock = mirror()
    held.put(POD, pod("a", 4), Source.OWN_WRITE)
    clock.now += 500
    assert held.untold_for_s(POD) == 0.0
    held.reset(POD, "models", (pod("a", 4),), "5")
    assert held.untold_for_s(POD) == 0.0
    clock.now += 50
    assert held.untold_for_s(POD) == 50.0


def test_tombstones_do_not_pile_up() -> None:
    held, _, clock = mirror()
    held.put(POD, pod("a", 1), Source.WATCH)
    held.remove("uid-a")
    clock.now += TOMBSTONE_S + 1
    held.reset(POD, "models", (), "5")
    held.put(POD, pod("a", 2), Source.WATCH)
    assert names(held) == ["a"]
