"""The converted embedded model: its tokenizer renders as the published one does, and its answers make sense."""

from pathlib import Path

import pytest
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.model_folder import EMBEDDED_MODEL, eos_token_ids, render_fingerprint, resolve_model
from kvarn_engine.runtime.embedded import copy_without_weights
from kvarn_engine.runtime.runner import load_runner
from kvarn_engine.runtime.settings import RuntimeSettings
from transformers import AutoTokenizer

from tests.support.naive_driver import advance, start

pytestmark = pytest.mark.model

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def folder() -> Path:
    return resolve_model(EMBEDDED_MODEL)


def test_chat_template_has_the_default_system_message(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_special_tokens_and_digits(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.encode("<|im_start|><|im_end|><|endoftext|>") == [1, 2, 0]
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("in 2024")) == ["in", "Ġ", "2", "0", "2", "4"]
    assert eos_token_ids(folder) == {2}
    assert tokenizer.eos_token == "<|im_end|>"
    for text in ("Grüße, 世界! 🌍👩‍🚀", "def f(x):\n    return x  # 1+1=2\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_folder_without_weights_renders_alike(folder: Path, tmp_path: Path) -> None:
    copy_without_weights(folder, tmp_path)
    assert list(tmp_path.glob("*.safetensors")) == []
    assert render_fingerprint(tmp_path) == render_fingerprint(folder)
    assert eos_token_ids(tmp_path) == eos_token_ids(folder)
    text = "in 2024, Grüße"
    assert AutoTokenizer.from_pretrained(tmp_path).encode(text) == AutoTokenizer.from_pretrained(folder).encode(text)


def test_greedy_answer_is_sensible(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = list(tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True)["input_ids"])
    runner = load_runner(RuntimeSettings(model=str(folder), dtype="float32", num_blocks=16, device="cpu"))
    running = start(runner, [prompt], SamplingParams(max_tokens=8, temperature=0.0))
    advance(runner, running, 8, chunk=64)
    assert tokenizer.decode(running[0].output).startswith("The capital of France is Paris.<|im_end|>")
