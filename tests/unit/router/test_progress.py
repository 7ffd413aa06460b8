"""What another worker is told when a stream moves."""

from kvarn_engine.core.ids import RequestId
from kvarn_engine.core.sampling import FinishReason, SampledToken, SamplingParams
from kvarn_router.context import FinishedEvent, GenerationRequest
from kvarn_router.progress import Progress

EOS = 2


def progress(num_choices: int = 1, max_tokens: int = 4, ignore_eos: bool = False) -> Progress:
    sampling = SamplingParams(max_tokens=max_tokens, stop_token_ids=frozenset({9}), ignore_eos=ignore_eos)
    return Progress(GenerationRequest(RequestId("r"), (10, 11), sampling, num_choices), frozenset({EOS}))


def sampled(*tokens: int) -> tuple[SampledToken, ...]:
    return tuple(SampledToken(token) for token in tokens)


def test_one_choice_moves_with_its_output() -> None:
    one = progress()
    one.take_tokens(0, sampled(5, 6))
    assert one.tokens == (10, 11, 5, 6)
    assert one.may_use_peers
    assert one.unfinished[0].output_tokens == [5, 6]


def test_several_choices_move_without_peers_once_they_have_tokens() -> None:
    many = progress(num_choices=2)
    assert many.may_use_peers
    many.take_tokens(1, sampled(5))
    many.finish(0, FinishReason.STOP)
    assert not many.may_use_peers
    assert many.tokens == (10, 11)
    assert [choice.index for choice in many.unfinished] == [1]


def test_stopped_choice_drops_late_tokens_and_is_finished_by_a_move() -> None:
    one = progress()
    one.take_tokens(0, sampled(5))
    assert one.stop(0)
    assert not one.stop(0)
    assert one.take_tokens(0, sampled(6)) is None
    assert one.all_stopped
    assert one.finish_complete() == [FinishedEvent(0, FinishReason.ABORTED)]
    assert one.finish(0, FinishReason.LENGTH) is None


def test_last_token_sent_but_not_its_end_event() -> None:
    full = progress(max_tokens=2)
    full.take_tokens(0, sampled(5, 6))
    assert full.finish_complete() == [FinishedEvent(0, FinishReason.LENGTH)]
    for last in (EOS, 9):
        ended = progress()
        ended.take_tokens(0, sampled(5, last))
        assert ended.finish_complete() == [FinishedEvent(0, FinishReason.STOP)]


def test_ignored_eos_does_not_end_a_choice() -> None:
    going_on = progress(ignore_eos=True)
    going_on.take_tokens(0, sampled(5, EOS))
    assert going_on.finish_complete() == []
