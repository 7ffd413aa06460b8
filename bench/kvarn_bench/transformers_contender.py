"""The same model through `transformers`' own forward and cache: the peer that runs everywhere."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from kvarn_bench.percentiles import median


class TransformersContender:
    name = "transformers"

    def __init__(self, folder: Path, dtype: str) -> None:
        transformers_logging.disable_progress_bar()
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    def prefill(self, tokens: Sequence[int]) -> float:
        began = time.perf_counter()
        with torch.inference_mode():
            output = self._model(torch.tensor([list(tokens)]), use_cache=True, logits_to_keep=1)
            int(output.logits[0, -1].argmax())
        return time.perf_counter() - began

    def decode_step(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        times = []
        with torch.inference_mode():
            output = self._model(torch.tensor([list(prompt) for prompt in prompts]), use_cache=True, logits_to_keep=1)
            for _ in range(steps):
                began = time.perf_counter()
                drawn = output.logits[:, -1].argmax(dim=-1, keepdim=True)
                output = self._model(drawn, cache=output.cache, use_cache=True)
                times.append(time.perf_counter() - began)
        return median(times)
