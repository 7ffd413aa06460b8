"""Which worker a request goes to, and why."""

from collections.abc import Sequence
from dataclasses import replace

from kvarn_engine.core.ids import Incarnation, RequestId, WorkerId
from kvarn_router.routing.cost import SaturationLimits, WorkerView
from kvarn_router.routing.policy import Decision, LayoutViews, choose

LIMITS = SaturationLimits(max_in_flight=4, max_waiting=2, max_kv_usage=0.9)
REQUEST = RequestId("req")


def view(name: str, cached: int = 0, in_flight: int = 0) -> WorkerView:
    return WorkerView(
        incarnation=Incarnation(f"{name}-1"),
        worker_id=WorkerId(name),
        cached_blocks=cached,
        cached_tokens=cached * 16,
        in_flight=in_flight,
        in_flight_tokens=0,
        waiting=0,
        queued_prefill_tokens=0,
        kv_usage=0.0,
    )


def layout(
    name: str, decode: Sequence[WorkerView], prefill: Sequence[WorkerView] = (), block_size: int = 16
) -> LayoutViews:
    return LayoutViews(name, block_size, 8 * 16 // block_size, decode, prefill)


def decide(*decode: WorkerView, prefill: tuple[WorkerView, ...] = (), request: RequestId = REQUEST) -> Decision:
    decision = choose(request, [layout("one", decode, prefill)], LIMITS)
    assert decision is not None
    return decision


def test_no_decode_worker_is_no_decision() -> None:
    assert choose(REQUEST, [layout("one", (), (view("p"),))], LIMITS) is None
    assert choose(REQUEST, [], LIMITS) is None


def test_peers_come_from_the_layout_of_the_decode_worker() -> None:
    old = layout("old", (view("d-old", cached=1),), (view("p-old", cached=7),))
    new = layout("new", (view("d-new", cached=2),), (view("p-new"),))
    for layouts in ([old, new], [new, old]):
        decision = choose(REQUEST, layouts, LIMITS)
        assert decision is not None
        assert decision.decode_worker.worker_id == "d-new"
        assert decision.prefill_peers == ("p-new-1",)
        assert decision.layout.fingerprint == "new"
        assert [ranked.view.worker_id for ranked in decision.decode] == ["d-new", "d-old"]


def test_a_pair_comes_before_a_decode_worker_alone() -> None:
    pair = layout("old", (view("busy", in_flight=9),), (view("p"),))
    alone = layout("new", (view("lone", cached=8),))
    decision = choose(REQUEST, [alone, pair], LIMITS)
    assert decision is not None
    assert decision.decode_worker.worker_id == "busy"
    assert "lone cached=8 in_flight=0 waiting=0, no prefill worker of its layout" in decision.explain()


def test_without_any_pair_a_decode_worker_goes_alone() -> None:
    decision = choose(REQUEST, [layout("new", (view("lone"),)), layout("old", (), (view("p"),))], LIMITS)
    assert decision is not None
    assert decision.decode_worker.worker_id == "lone"
    assert decision.prefill_peers == ()


def test_block_sizes_are_compared_in_tokens() -> None:
    small = layout("small", (replace(view("s", cached=3), cached_tokens=24),), (view("p"),), block_size=8)
    large = layout("large", (replace(view("l", cached=2), cached_tokens=32),), (view("q"),))
    decision = choose(REQUEST, [small, large], LIMITS)
    assert decision is not None
    assert decision.decode_worker.worker_id == "l"
    assert decision.predicted_tokens == 32


def test_a_moved_request_of_several_choices_has_no_peers() -> None:
    decision = choose(REQUEST, [layout("one", (view("d"),), (view("p"),))], LIMITS, use_peers=False)
    assert decision is not None
    assert decision.prefill_peers == ()
    assert not decision.decode[0].is_alone


def test_longest_prefix_wins_over_load() -> None:
    assert decide(view("a", cached=3, in_flight=3), view("b", cached=2)).decode_worker.worker_id == "a"


def test_equal_prefix_goes_to_the_lower_load() -> None:
    assert decide(view("a", cached=3, in_flight=2), view("b", cached=3, in_flight=1)).decode_worker.worker_id == "b"


def test_requests_of_other_routers_count_as_load() -> None:
    busy = replace(view("a"), waiting=2)
    assert decide(busy, view("b", in_flight=1)).decode_worker.worker_id == "b"


def test_saturated_worker_is_passed_over_whatever_it_caches() -> None:
    for saturated in (
        view("a", cached=8, in_flight=4),
        replace(view("a", cached=8), waiting=3),
        replace(view("a", cached=8), kv_usage=0.95),
    ):
        decision = decide(saturated, view("b"))
        assert decision.decode_worker.worker_id == "b"
        assert "saturated" in decision.explain()


def test_when_all_are_saturated_the_least_loaded_takes_it() -> None:
    assert decide(view("a", cached=8, in_flight=9), view("b", in_flight=5)).decode_worker.worker_id == "b"


def test_ties_do_not_depend_on_order_and_spread_over_requests() -> None:
    workers = [view(name) for name in "abcd"]
    chosen = set()
    for number in range(64):
        request = RequestId(f"req-{number}")
        forwards = decide(*workers, request=request).decode_worker.worker_id
        backwards = decide(*reversed(workers), request=request).decode_worker.worker_id
        assert forwards == backwards
        chosen.add(forwards)
    assert chosen == {"a", "b", "c", "d"}


def test_prefill_peers_are_the_two_best_in_order() -> None:
    prefill = (view("p0", cached=1), view("p1", cached=5), view("p2", cached=3))
    decision = decide(view("d", cached=2), prefill=prefill)
    assert decision.prefill_peers == ("p1-1", "p2-1")
    assert decision.predicted_blocks == 5


def test_explanation_names_every_candidate_in_ascii() -> None:
    text = decide(view("d0"), view("d1"), prefill=(view("p0"),)).explain()
    assert all(name in text for name in ("d0", "d1", "p0"))
    assert text.isascii()
    assert "\n" not in text
