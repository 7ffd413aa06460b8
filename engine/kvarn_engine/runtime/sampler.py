"""Draws tokens from logits, for all draws of a step.

What is the same for all rows is done on the batch; what a request asks for on top touches its own row only. Every
operation works within one row, so a draw never depends on its neighbours. Order: logit bias, minimum length, penalties,
temperature, min_p, top_k, top_p, draw. Logprobs are of the raw distribution.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from kvarn_engine.core.ids import TokenId
from kvarn_engine.core.plan import Draw
from kvarn_engine.core.sampling import SampledToken, SamplingParams, TopLogprob
from kvarn_engine.runtime.random_draw import GUMBEL_RANGE, draw_key, gumbel_noise

_Row = npt.NDArray[np.float32]


class Sampler:
    def __init__(self, eos_token_ids: frozenset[TokenId]) -> None:
        self._eos = eos_token_ids

    def sample(self, logits: torch.Tensor, draws: Sequence[Sequence[Draw]]) -> list[list[SampledToken]]:
        """`logits` is `[n][vocab]`; `draws[i]` are drawn from row i."""
        greedy = torch.argmax(logits, dim=-1).tolist()
        host = _to_host(logits, draws)
        return [
            [self._draw(host[row], int(greedy[row]), draw) for draw in row_draws] for row, row_draws in enumerate(draws)
        ]

    def _draw(self, raw: _Row | None, greedy: TokenId, draw: Draw) -> SampledToken:
        if raw is None:
            return SampledToken(greedy)
        adjusted = self._adjust(raw, draw)
        token = int(np.argmax(adjusted)) if draw.params.is_greedy else draw_token(adjusted, draw)
        if draw.params.logprobs is None:
            return SampledToken(token)
        return with_logprobs(raw, token, draw.params.logprobs)

    def _adjust(self, raw: _Row, draw: Draw) -> _Row:
        params = draw.params
        if not changes_logits(draw):
            return raw
        row = raw.copy()
        for token, bias in params.logit_bias.items():
            row[token] += np.float32(bias)
        if len(draw.output_tokens) < params.min_tokens:
            row[sorted(self._eos | params.stop_token_ids)] = -np.inf
        apply_penalties(row, draw)
        return row


def changes_logits(draw: Draw) -> bool:
    params = draw.params
    return (
        bool(params.logit_bias)
        or len(draw.output_tokens) < params.min_tokens
        or params.repetition_penalty != 1.0
        or params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
    )


def apply_penalties(row: _Row, draw: Draw) -> None:
    params = draw.params
    if params.repetition_penalty != 1.0:
        seen = np.unique(np.fromiter((*draw.prompt_tokens, *draw.output_tokens), dtype=np.int64))
        factor = np.float32(params.repetition_penalty)
        row[seen] = np.where(row[seen] > 0, row[seen] / factor, row[seen] * factor)
    if (params.frequency_penalty or params.presence_penalty) and draw.output_tokens:
        tokens, counts = np.unique(np.fromiter(draw.output_tokens, dtype=np.int64), return_counts=True)
        frequency, presence = np.float32(params.frequency_penalty), np.float32(params.presence_penalty)
        row[tokens] -= frequency * counts.astype(np.float32) + presence


def draw_token(row: _Row, draw: Draw) -> TokenId:
    """Gumbel-max over the tokens that the filters keep; ties go to the lowest id."""
    params = draw.params
    scaled = row.astype(np.float64) / params.temperature
    kept = keep_tokens(scaled, params)
    scores = scaled[kept] + gumbel_noise(draw_key(params.seed, draw.position, draw.choice), kept)
    return int(kept[np.argmax(scores)])


def keep_tokens(scaled: npt.NDArray[np.float64], params: SamplingParams) -> npt.NDArray[np.int64]:
    """Ids in ascending order that min_p, top_k and top_p leave; the most likely token always stays."""
    best = scaled.max()
    floor = best + np.log(params.min_p) if params.min_p > 0.0 else -np.inf
    if params.top_p < 1.0:
        # Mass outside the range of the noise still counts for top_p.
        kept = np.flatnonzero(scaled >= floor)
    else:
        kept = np.flatnonzero(scaled >= max(floor, best - GUMBEL_RANGE))
    if 0 < params.top_k < kept.size:
        kept = _most_likely(scaled, kept, params.top_k)
    if params.top_p < 1.0:
        kept = _nucleus(scaled, kept, params.top_p)
    return kept


def _most_likely(scaled: npt.NDArray[np.float64], kept: npt.NDArray[np.int64], k: int) -> npt.NDArray[np.int64]:
    """The k most likely of `kept`; of equals at the border the lowest ids, so that exactly k stay."""
    values = scaled[kept]
    border = np.partition(values, values.size - k)[values.size - k]
    above, equal = kept[values > border], kept[values == border]
    return np.sort(np.concatenate((above, equal[: k - above.size])))


def _nucleus(scaled: npt.NDArray[np.float64], kept: npt.NDArray[np.int64], top_p: float) -> npt.NDArray[np.int64]:
    """The smallest set of most likely tokens whose mass reaches `top_p`."""
    mass = np.exp(scaled[kept] - scaled[kept].max())
    mass /= mass.sum()
    # Tokens below this share cannot all together hold the mass that top_p leaves out, so they need no sorting.
    small = mass < (1.0 - top_p) / mass.size
    candidates, mass = kept[~small], mass[~small]
    order = np.argsort(-mass, kind="stable")
    reached = np.cumsum(mass[order])
    count = int(np.searchsorted(reached, top_p, side="left")) + 1
    return np.sort(candidates[order[:count]])


def with_logprobs(raw: _Row, token: TokenId, top: int) -> SampledToken:
    wide = raw.astype(np.float64)
    best = wide.max()
    logprobs = wide - (best + np.log(np.exp(wide - best).sum()))
    ids = _most_likely(logprobs, np.arange(logprobs.size), min(top, logprobs.size)) if top else np.empty(0, np.int64)
    ordered = ids[np.argsort(-logprobs[ids], kind="stable")]
    return SampledToken(
        token_id=token,
        logprob=float(logprobs[token]),
        top_logprobs=tuple(TopLogprob(int(index), float(logprobs[index])) for index in ordered),
    )


def _to_host(logits: torch.Tensor, draws: Sequence[Sequence[Draw]]) -> list[_Row | None]:
    """Rows that need more than the batched argmax, as float32 on the host."""
    wanted = [row for row, row_draws in enumerate(draws) if any(_needs_row(draw) for draw in row_draws)]
    rows: list[_Row | None] = [None] * len(draws)
    if wanted:
        chosen = logits if len(wanted) == len(draws) else logits[torch.tensor(wanted, device=logits.device)]
        for row, values in zip(wanted, chosen.float().cpu().numpy(), strict=True):
            rows[row] = values
    return rows


def _needs_row(draw: Draw) -> bool:
    return not draw.params.is_greedy or draw.params.logprobs is not None or changes_logits(draw)
