"""Sampler: every draw depends on its own row and key only, and each parameter does what a naive version does."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from kvarn_engine.core.plan import Draw
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.runtime.random_draw import draw_key, gumbel_noise
from kvarn_engine.runtime.sampler import Sampler, apply_penalties, keep_tokens

VOCAB = 200
EOS = frozenset({3})


def params(**changes: object) -> SamplingParams:
    return replace(SamplingParams(max_tokens=64), **changes)  # type: ignore[arg-type]


def draw(sampling: SamplingParams, position: int = 5, choice: int = 0, prompt=(1, 2), output=()) -> Draw:
    return Draw(choice, sampling, position, prompt, output)


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def one(row: torch.Tensor, wanted: Draw) -> int:
    return Sampler(EOS).sample(row.unsqueeze(0), [[wanted]])[0][0].token_id


@pytest.mark.parametrize(
    "sampling",
    [
        params(seed=11),
        params(seed=11, temperature=0.6, top_p=0.9),
        params(seed=11, top_k=7, min_p=0.02),
        params(seed=11, frequency_penalty=0.5, repetition_penalty=1.2, logprobs=3),
    ],
)
def test_draws_do_not_depend_on_the_batch(sampling: SamplingParams) -> None:
    rows = logits(6)
    draws = [[draw(sampling, position=9 + row, choice=c, output=(4, 5, 4)) for c in range(2)] for row in range(6)]
    together = Sampler(EOS).sample(rows, draws)
    for row in reversed(range(6)):
        assert Sampler(EOS).sample(rows[row : row + 1], [draws[row]])[0] == together[row]


def test_draws_differ_by_seed_position_and_choice() -> None:
    row = torch.zeros(VOCAB)
    base = {one(row, draw(params(seed=seed))) for seed in range(40)}
    by_position = {one(row, draw(params(), position=position)) for position in range(40)}
    by_choice = {one(row, draw(params(), choice=choice)) for choice in range(40)}
    assert min(len(base), len(by_position), len(by_choice)) > 25


def test_draws_follow_the_distribution() -> None:
    row = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    count = 4000
    drawn = Counter(Sampler(frozenset()).sample(row.unsqueeze(0), [[draw(params(), p)]])[0][0].token_id
                    for p in range(count))  # fmt: skip
    for token, share in enumerate([0.5, 0.3, 0.15, 0.05]):
        assert abs(drawn[token] / count - share) < 5 * math.sqrt(share * (1 - share) / count)


def test_noise_is_fixed_for_all_time() -> None:
    """Resume on another version of Kvarn must draw the same tokens: a changed value here breaks streams."""
    noise = gumbel_noise(draw_key(1234, 7, 2), np.arange(3))
    assert noise == pytest.approx(gumbel_noise(draw_key(1234, 7, 2), np.arange(200))[:3], abs=0)
    assert draw_key(0, 0, 0) != draw_key(0, 0, 1) != draw_key(0, 1, 0)
    assert draw_key(2**64 - 1, 5, 0) < 2**64


def test_greedy_ties_go_to_the_lowest_id() -> None:
    row = torch.zeros(VOCAB)
    row[[50, 20, 120]] = 4.0
    assert one(row, draw(params(temperature=0.0))) == 20
    assert one(row, draw(params(temperature=0.0, logprobs=0))) == 20


def naive_keep(row: np.ndarray, sampling: SamplingParams) -> set[int]:
    probabilities = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    order = sorted(range(row.size), key=lambda token: (-row[token], token))
    kept = [token for token in order if probabilities[token] >= sampling.min_p * probabilities.max()]
    kept = kept[: sampling.top_k] if sampling.top_k else kept
    total, mass, nucleus = sum(probabilities[token] for token in kept), 0.0, set()
    for token in kept:
        nucleus.add(token)
        mass += probabilities[token] / total
        if mass >= sampling.top_p:
            break
    return nucleus


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 5, 60])
@pytest.mark.parametrize("min_p", [0.0, 0.05])
def test_filters_equal_a_naive_version(top_p: float, top_k: int, min_p: float) -> None:
    sampling = params(top_p=top_p, top_k=top_k, min_p=min_p)
    for seed in range(5):
        row = logits(1, seed)[0].double().numpy()
        assert set(keep_tokens(row, sampling).tolist()) == naive_keep(row, sampling)


def test_penalties_equal_a_naive_version() -> None:
    sampling = params(frequency_penalty=0.7, presence_penalty=0.4, repetition_penalty=1.3)
    prompt, output = (1, 2, 2, 9), (5, 5, 9, 7)
    row = logits(1)[0].numpy()
    expected = row.copy()
    for token in {*prompt, *output}:
        expected[token] = expected[token] / 1.3 if expected[token] > 0 else expected[token] * 1.3
    for token, count in Counter(output).items():
        expected[token] -= 0.7 * count + 0.4
    apply_penalties(row, draw(sampling, prompt=prompt, output=output))
    assert row == pytest.approx(expected, rel=1e-6)


def test_logit_bias_and_min_tokens() -> None:
    row = torch.zeros(VOCAB)
    row[3], row[8], row[30] = 9.0, 8.0, 7.0
    greedy = params(temperature=0.0, min_tokens=2, stop_token_ids=frozenset({8}))
    assert one(row, draw(greedy, output=(1,))) == 30
    assert one(row, draw(greedy, output=(1, 1))) == 3
    assert one(row, draw(params(temperature=0.0, logit_bias={30: 5.0}))) == 30
    assert one(row, draw(params(temperature=0.0, logit_bias={3: -100.0}))) == 8


def test_logprobs_are_of_the_raw_distribution() -> None:
    row = logits(1)[0]
    expected = torch.log_softmax(row.double(), -1)
    sampling = params(temperature=0.3, logprobs=4, logit_bias={17: 100.0}, frequency_penalty=1.0)
    token = Sampler(EOS).sample(row.unsqueeze(0), [[draw(sampling, output=(4,))]])[0][0]
    assert token.token_id == 17
    assert token.logprob == pytest.approx(expected[17].item())
    values, ids = expected.topk(4)
    assert [top.token_id for top in token.top_logprobs] == ids.tolist()
    assert [top.logprob for top in token.top_logprobs] == pytest.approx(values.tolist())


def test_draws_of_one_row_share_its_logits() -> None:
    rows = logits(2)
    sampled = Sampler(EOS).sample(rows, [[draw(params(), choice=c) for c in range(3)], [draw(params(temperature=0.0))]])
    assert [len(tokens) for tokens in sampled] == [3, 1]
    assert sampled[0][2].token_id == one(rows[0], draw(params(), choice=2))
