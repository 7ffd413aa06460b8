"""A ModelRunner without a model: deterministic tokens, blocks that betray every mistake, and a cost in seconds.

A block holds, for each slot, the token id (where K would be) and a running digest over the whole history up to that
token (where V would be). A step checks the digests of every block before it, so that a block that is stale, misplaced
or of another request is an error and never a wrong token.
"""

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

from kvarn_engine.core.ids import BlockIndex, TokenId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.plan import Draw, PlanEntry, StepPlan
from kvarn_engine.core.sampling import SampledToken, TopLogprob

_WORD = 4


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds that a step takes. All zero: as fast as it goes."""

    step_s: float = 0.0
    prefill_token_s: float = 0.0
    decode_sequence_s: float = 0.0
    context_token_s: float = 0.0
    """For each token of context that a decoding sequence reads."""

    def seconds(self, plan: StepPlan) -> float:
        prefill = sum(len(entry.tokens) for entry in plan.entries if len(entry.tokens) > 1)
        decodes = [entry for entry in plan.entries if len(entry.tokens) == 1]
        context = sum(entry.start for entry in decodes)
        return (
            self.step_s
            + prefill * self.prefill_token_s
            + len(decodes) * self.decode_sequence_s
            + context * self.context_token_s
        )


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    num_blocks: int = 1024
    block_size: int = 16
    max_model_len: int = 8192
    vocab_size: int = 49152
    eos_token_ids: frozenset[TokenId] = frozenset({2})
    model_revision: str = "simulated"
    cost: CostModel = CostModel()


class SimulatedRunner:
    def __init__(
        self, settings: SimulatedSettings = SimulatedSettings(), sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._layout = KvLayout(settings.model_revision, "float32", 1, 1, 1, settings.block_size)
        self._store = memoryview(bytearray(settings.num_blocks * self._layout.block_bytes))

    @property
    def layout(self) -> KvLayout:
        return self._layout

    @property
    def num_blocks(self) -> int:
        return self._settings.num_blocks

    @property
    def max_model_len(self) -> int:
        return self._settings.max_model_len

    @property
    def vocab_size(self) -> int:
        return self._settings.vocab_size

    @property
    def eos_token_ids(self) -> frozenset[TokenId]:
        return self._settings.eos_token_ids

    def execute(self, plan: StepPlan) -> list[list[SampledToken]]:
        seconds = self._settings.cost.seconds(plan)
        if seconds > 0:
            self._sleep(seconds)
        for copy in plan.copies:
            self.read_block(copy.target)[:] = self.read_block(copy.source)
        return [self._run(entry) for entry in plan.entries]

    def read_block(self, index: BlockIndex) -> memoryview:
        size = self._layout.block_bytes
        return self._store[index * size : (index + 1) * size]

    def write_block(self, index: BlockIndex, payload: memoryview) -> None:
        if payload.nbytes != self._layout.block_bytes:
            raise ValueError(f"a block has {self._layout.block_bytes} bytes, not {payload.nbytes}")
        self.read_block(index)[:] = payload.cast("B")

    # ---- inside ----

    def _run(self, entry: PlanEntry) -> list[SampledToken]:
        digest = self._check_history(entry)
        block_size = self._layout.block_size
        for offset, token in enumerate(entry.tokens):
            block, slot = divmod(entry.start + offset, block_size)
            words = self.read_block(entry.block_table[block]).cast("I")
            encoded = token.to_bytes(_WORD, "little")
            digest = crc32(encoded, digest)
            words[slot] = int.from_bytes(encoded, "little")
            words[block_size + slot] = digest
        return [self._draw(draw, digest) for draw in entry.draws]

    def _check_history(self, entry: PlanEntry) -> int:
        """Digest over the tokens before the entry, found in its blocks. Raises RuntimeError where they contradict."""
        block_size = self._layout.block_size
        digest = 0
        for position in range(-(-entry.start // block_size)):
            words = self.read_block(entry.block_table[position]).cast("I")
            used = min(block_size, entry.start - position * block_size)
            digest = crc32(words[:used].tobytes(), digest)
            if words[block_size + used - 1] != digest:
                raise RuntimeError(f"block {entry.block_table[position]} does not continue the sequence at {position}")
        return digest

    def _draw(self, draw: Draw, digest: int) -> SampledToken:
        history = crc32(array("I", draw.output_tokens).tobytes(), crc32(array("I", draw.prompt_tokens).tobytes()))
        if history != digest or draw.position != len(draw.prompt_tokens) + len(draw.output_tokens):
            raise RuntimeError("blocks do not hold the history that the draw continues")
        params = draw.params
        key = digest if params.is_greedy else (digest, params.seed, draw.choice)
        token = self._allowed(draw, _number(key, draw.position) % self.vocab_size)
        if params.logprobs is None:
            return SampledToken(token)
        top = tuple(
            TopLogprob((token + rank) % self.vocab_size, -0.5 - rank) for rank in range(params.logprobs)
        )  # fmt: skip
        return SampledToken(token, -0.5, top)

    def _allowed(self, draw: Draw, token: TokenId) -> TokenId:
        if len(draw.output_tokens) < draw.params.min_tokens:
            ends: Sequence[TokenId] = [*self.eos_token_ids, *draw.params.stop_token_ids]
            while token in ends:
                token = (token + 1) % self.vocab_size
        return token


def _number(key: object, position: int) -> int:
    return int.from_bytes(blake2b(repr((key, position)).encode(), digest_size=8).digest(), "little")
