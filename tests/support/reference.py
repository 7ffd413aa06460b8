"""The oracle: `transformers.generate` on the same folder in the same dtype, one sequence at a time.

Parity rule. In float32 the stack's greedy tokens equal the reference's. In bfloat16 matrix products round differently
by batch shape, so a token may differ from the reference's best only where the reference itself cannot tell: a
teacher-forced reference forward over the stack's own output must give the token a logit within `epsilon` of the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass(frozen=True)
class Divergence:
    """The first position where the stack left the reference, and how sure the reference was there."""

    position: int
    margin: float
    """Best logit minus second best."""

    regret: float
    """Best logit minus the logit of the stack's token."""


class Reference:
    """Greedy answers of one model folder, computed once per prompt."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        torch.set_num_threads(2)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        eos = self._model.generation_config.eos_token_id
        self.eos_token_ids = frozenset([eos] if isinstance(eos, int) else eos or ())
        self._answers: dict[tuple[tuple[int, ...], int], list[int]] = {}

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self.tokenizer.encode(text)]

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return [int(token) for token in self.tokenizer.encode(text, add_special_tokens=False)]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def greedy(self, prompt: Sequence[int], max_tokens: int) -> list[int]:
        key = (tuple(prompt), max_tokens)
        if key not in self._answers:
            row = torch.tensor([list(prompt)])
            with torch.inference_mode():
                output = self._model.generate(
                    row, attention_mask=torch.ones_like(row), max_new_tokens=max_tokens, do_sample=False, pad_token_id=0
                )
            self._answers[key] = [int(token) for token in output[0, len(prompt) :]]
        return self._answers[key]

    def first_difference(self, prompt: Sequence[int], expected: Sequence[int], answer: Sequence[int]) -> Divergence:
        """How sure a teacher-forced reference is where `answer` leaves `expected`. They must differ."""
        pairs = zip([*expected, None], [*answer, None], strict=False)
        position = next(index for index, (ours, theirs) in enumerate(pairs) if ours != theirs)
        logits = self._forced_logits(prompt, answer)[position]
        best, second = torch.topk(logits, 2).values.tolist()
        chosen = answer[position] if position < len(answer) else next(iter(self.eos_token_ids))
        return Divergence(position, best - second, best - float(logits[chosen]))

    def worst_regret(self, prompt: Sequence[int], answer: Sequence[int]) -> float:
        """How far below the reference's best logit the least likely token of `answer` lies."""
        logits = self._forced_logits(prompt, answer)[: len(answer)]
        chosen = logits.gather(1, torch.tensor(list(answer))[:, None])[:, 0]
        return float((logits.max(dim=1).values - chosen).max())

    def _forced_logits(self, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
        """Row i predicts `answer[i]`; the last row predicts what would follow it."""
        row = torch.tensor([[*prompt, *answer]])
        with torch.inference_mode():
            logits: torch.Tensor = self._model(row, use_cache=False).logits[0, len(prompt) - 1 :].float()
        return logits
