"""vLLM's figures, measured by the Python that has it: `PYTHON vllm_peer.py JOB`, JOB and the answer being JSON.

Runs in another environment, so it imports nothing of Kvarn. The answer is the line of standard output that starts with
ANSWER; vLLM and its processes write other lines before and after it.
"""

import importlib
import json
import random
import sys
import time
from collections.abc import Sequence

ANSWER = "kvarn-bench-answer "


def main() -> int:
    job = json.loads(sys.argv[1])
    vllm = importlib.import_module("vllm")
    longest = max([*job["prefill_tokens"], job["context"] + job["steps"] + 1]) + 8
    # vLLM ships without types, so what it returns is checked by use.
    engine = vllm.LLM(
        model=job["model"],
        dtype=job["dtype"],
        max_model_len=longest,
        max_num_batched_tokens=max(longest, 2048),
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    source = random.Random(0)

    def timed(count: int, length: int, max_tokens: int) -> float:
        """Seconds for `count` requests of `length` random tokens each, submitted together."""
        prompts = [{"prompt_token_ids": source.choices(range(job["vocab_size"]), k=length)} for _ in range(count)]
        sampling = vllm.SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        began = time.perf_counter()
        engine.generate(prompts, sampling, use_tqdm=False)
        return time.perf_counter() - began

    rounds = job["rounds"]
    prefill = {}
    for length in job["prefill_tokens"]:
        prefill[length] = _median([timed(1, length, 1) for _ in range(rounds + 1)][1:])
    decode = {}
    for batch in job["batches"]:
        # The prompts cost the same with one output token, so the difference is the decode steps alone.
        steps = job["steps"]
        differences = [timed(batch, job["context"], steps + 1) - timed(batch, job["context"], 1) for _ in range(rounds)]
        decode[batch] = _median(differences) / steps
    answer = json.dumps({"version": vllm.__version__, "prefill_s": prefill, "decode_s": decode})
    print(f"\n{ANSWER}{answer}", flush=True)
    return 0


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


if __name__ == "__main__":
    sys.exit(main())
