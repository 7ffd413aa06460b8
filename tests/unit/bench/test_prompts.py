import pytest
from kvarn_bench.prompts import PromptMix, make_prompts


def test_lengths_come_from_the_mix() -> None:
    prompts = make_prompts(PromptMix((5, 50)), 200, 1)
    assert {len(prompt.split()) for prompt in prompts} == {5, 50}


def test_same_seed_same_prompts() -> None:
    mix = PromptMix((20,), shared_fraction=0.5, groups=2)
    assert make_prompts(mix, 10, 1) == make_prompts(mix, 10, 1)
    assert make_prompts(mix, 10, 1) != make_prompts(mix, 10, 2)


def test_prompts_of_a_group_share_just_their_leading_part() -> None:
    one, two = (prompt.split() for prompt in make_prompts(PromptMix((400,), shared_fraction=0.5), 2, 1))
    assert one[:200] == two[:200]
    assert one[200:] != two[200:]


def test_groups_share_nothing_with_each_other() -> None:
    prompts = make_prompts(PromptMix((100,), shared_fraction=1.0, groups=3), 100, 1)
    assert len(set(prompts)) == 3


def test_no_sharing_leaves_no_common_head() -> None:
    prompts = make_prompts(PromptMix((50,), shared_fraction=0.0), 20, 1)
    assert len({tuple(prompt.split()[:5]) for prompt in prompts}) == 20


@pytest.mark.parametrize(
    ("lengths", "shared", "groups"), [((), 0.0, 1), ((0,), 0.0, 1), ((5,), 1.5, 1), ((5,), -0.1, 1), ((5,), 0.5, 0)]
)
def test_refuses_a_mix_that_cannot_be(lengths: tuple[int, ...], shared: float, groups: int) -> None:
    with pytest.raises(ValueError):
        PromptMix(lengths, shared, groups)
