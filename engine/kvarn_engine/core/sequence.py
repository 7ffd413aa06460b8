"""One choice of one request: its tokens, how far they are computed, and the blocks that hold the result.

Until its first token a sequence may stand for several choices (`siblings`), which then fork off and share its blocks.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from kvarn_engine.core.hashing import block_hashes
from kvarn_engine.core.ids import BlockHash, BlockIndex, RequestId, TokenId
from kvarn_engine.core.lifecycle import SequenceStatus, check_transition
from kvarn_engine.core.sampling import SampledToken, SamplingParams


@dataclass(eq=False, slots=True)
class Sequence:
    request_id: RequestId
    prompt: Tokens[TokenId]
    params: SamplingParams
    root_hash: BlockHash
    choice: int = 0
    siblings: tuple[int, ...] = ()
    """Choices that get their first token from this sequence's logits and fork off then."""

    output: list[TokenId] = field(default_factory=list)
    priority: int = 0
    imports: bool = False
    """Admitted to IMPORTING: its blocks may come from a peer, and whoever asked for it says when it starts."""

    exports: bool = False
    """Ends at its first draw and keeps its blocks until it is freed. Never preempted."""

    sent_first: Mapping[int, SampledToken] = field(default_factory=dict)
    """First tokens by choice that a peer drew and the client has: they stand in for the draw that this sequence makes
    once its prompt is computed here. The draw may round differently, and the client's text must go on from its own."""

    arrival: int = 0
    status: SequenceStatus = SequenceStatus.WAITING
    num_computed: int = 0
    """Leading tokens whose K and V are in `block_table`."""

    num_published: int = 0
    """Leading blocks of `block_table` that the prefix cache knows, or holds a twin of."""

    num_cached: int = 0
    """Tokens found in the prefix cache at the last admission."""

    preemptions: int = 0
    block_table: list[BlockIndex] = field(default_factory=list)
    hashes: list[BlockHash] = field(default_factory=list)
    """Chain hashes of the leading full blocks, as far as anybody asked."""

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.output)

    @property
    def num_uncomputed(self) -> int:
        return self.num_tokens - self.num_computed

    @property
    def choices(self) -> tuple[int, ...]:
        return (self.choice, *self.siblings)

    @property
    def sort_key(self) -> tuple[int, int]:
        """Served earlier when smaller; the largest is preempted first."""
        return (self.priority, self.arrival)

    def tokens(self, start: int, end: int) -> Tokens[TokenId]:
        """Prompt and output tokens `[start, end)`."""
        split = len(self.prompt)
        if end <= split:
            return self.prompt[start:end]
        if start >= split:
            return self.output[start - split : end - split]
        return [*self.prompt[start:], *self.output[: end - split]]

    def chain(self, count: int, block_size: int) -> Tokens[BlockHash]:
        """Hashes of the first `count` blocks, which must be full."""
        if len(self.hashes) < count:
            assert count * block_size <= self.num_tokens
            parent = self.hashes[-1] if self.hashes else self.root_hash
            unhashed = self.tokens(len(self.hashes) * block_size, count * block_size)
            self.hashes.extend(block_hashes(parent, unhashed, block_size))
        return self.hashes[:count]

    def move(self, status: SequenceStatus) -> None:
        check_transition(self.status, status)
        self.status = status

    def fork(self, choice: int) -> "Sequence":
        """A running twin for another choice. The caller makes it a holder of the shared blocks."""
        return Sequence(
            request_id=self.request_id, prompt=self.prompt, params=self.params, root_hash=self.root_hash,
            choice=choice, output=list(self.output), priority=self.priority, arrival=self.arrival,
            status=self.status, num_computed=self.num_computed, num_published=self.num_published,
            num_cached=self.num_cached, block_table=list(self.block_table), hashes=list(self.hashes),
        )  # fmt: skip
