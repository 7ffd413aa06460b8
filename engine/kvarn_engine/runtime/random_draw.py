"""Position-keyed randomness: the draw for position i of choice c is a pure function of (seed, i, c) and the token.

There is no generator and no state, so the same draw comes out in any batch, in any process, and after any resume.
"""

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def draw_key(seed: int, position: int, choice: int) -> int:
    """64 bits from the three parts of the key, each mixed before the next is added."""
    key = _mix_int((seed + _GOLDEN) & _MASK)
    key = _mix_int((key ^ position) + _GOLDEN & _MASK)
    return _mix_int((key ^ choice) + _GOLDEN & _MASK)


def gumbel_noise(key: int, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise for each token id; the largest `logit + noise` is a draw from softmax(logits)."""
    bits = _mix_array(np.uint64(key) + (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN))
    # 53 bits, moved half a step up: never 0 and never 1, so both logarithms are finite.
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.asarray(-np.log(-np.log(uniform)))


GUMBEL_RANGE = 42.0
"""No noise value exceeds another by more: logits further below the best than this can never win."""


def _mix_int(value: int) -> int:
    """The finalizer of splitmix64."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _mix_array(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
