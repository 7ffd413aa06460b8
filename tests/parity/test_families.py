"""Greedy output of tiny random models equals `transformers.generate`, token for token, in float32."""

from pathlib import Path

import pytest
import torch
import transformers
from kvarn_engine.core.errors import UnsupportedModel
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.runtime.runner import TorchRunner, load_runner
from kvarn_engine.runtime.settings import RuntimeSettings
from transformers import AutoModelForCausalLM

from tests.support.naive_driver import advance, start

_SIZES = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
_GPT2 = {"vocab_size": 128, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "eos_token_id": 2}
FAMILIES = {
    "llama": ("LlamaConfig", _SIZES),
    "qwen2": ("Qwen2Config", _SIZES),
    "qwen3": ("Qwen3Config", {**_SIZES, "head_dim": 16}),
    "mistral_window": ("MistralConfig", {**_SIZES, "sliding_window": 9}),
    "gemma2": ("Gemma2Config", {**_SIZES, "head_dim": 16, "sliding_window": 9}),
    "gemma3": ("Gemma3TextConfig", {**_SIZES, "head_dim": 16, "sliding_window": 9, "sliding_window_pattern": 3}),
    "mixtral": ("MixtralConfig", {**_SIZES, "num_local_experts": 4}),
    "qwen3_moe": ("Qwen3MoeConfig", {**_SIZES, **_EXPERTS, "head_dim": 16}),
    "gpt2": ("GPT2Config", _GPT2),
}
REFUSED = {
    "sinks": ("GptOssConfig", {**_SIZES, "head_dim": 16, "num_local_experts": 4}),
    "latent": (
        "DeepseekV3Config",
        {**_SIZES, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "q_lora_rank": 16,
         "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 4},
    ),
    "state_space": ("MambaConfig", {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}),
    "dynamic_rope": (
        "LlamaConfig", {**_SIZES, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}
    ),
    "encoder_decoder": ("T5Config", {"vocab_size": 128, "d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1}),
    "alibi": ("BloomConfig", {"vocab_size": 128, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
}  # fmt: skip
PROMPTS = [[(7 * i * (line + 3) + line) % 120 + 4 for i in range(length)] for line, length in enumerate([1, 5, 23, 40])]
NEW_TOKENS = 24
GREEDY = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0)


def build(kind: str, sizes: dict[str, object], folder: Path) -> None:
    torch.manual_seed(7)
    config = getattr(transformers, kind)(**sizes)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = auto.from_config(config).float()
    with torch.no_grad():
        # Larger weights than the initial ones, so that attention matters for the output.
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6.0)
    model.save_pretrained(folder)


def expected(folder: Path) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    outputs = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        generated = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            pad_token_id=0,
            eos_token_id=None,
        )
        outputs.append(generated[0, len(prompt) :].tolist())
    return outputs


def runner_for(folder: Path, attention: str = "auto") -> TorchRunner:
    return load_runner(
        RuntimeSettings(
            model=str(folder), dtype="float32", num_blocks=64, block_size=4, device="cpu", attention=attention
        )
    )


@pytest.fixture(scope="module", params=FAMILIES, ids=str)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    build(*FAMILIES[request.param], folder)
    return folder


@pytest.mark.parametrize("attention", ["cpu", "reference"])
def test_greedy_equals_transformers(family: Path, attention: str) -> None:
    runner = runner_for(family, attention)
    wanted = expected(family)
    assert len({tuple(tokens) for tokens in wanted}) > 1
    for chunk in (7, 64):
        running = start(runner, PROMPTS, GREEDY, seed=chunk)
        advance(runner, running, NEW_TOKENS, chunk)
        assert [sequence.output for sequence in running] == wanted


def test_blocks_moved_to_another_runner_continue_the_same(family: Path) -> None:
    source, target = runner_for(family), runner_for(family)
    assert source.layout.fingerprint == target.layout.fingerprint
    here = start(source, PROMPTS, GREEDY, seed=1)
    advance(source, here, 9, chunk=16)
    there = start(target, PROMPTS, GREEDY, seed=2)
    for left, right in zip(here, there, strict=True):
        right.output, right.done = list(left.output), left.done
        for index, other in zip(left.blocks, right.blocks, strict=True):
            target.write_block(other, source.read_block(index))
    advance(source, here, NEW_TOKENS, chunk=16)
    advance(target, there, NEW_TOKENS, chunk=16)
    assert [sequence.output for sequence in there] == [sequence.output for sequence in here]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_right_is_refused(name: str, tmp_path: Path) -> None:
    build(*REFUSED[name], tmp_path)
    with pytest.raises(UnsupportedModel):
        runner_for(tmp_path)
