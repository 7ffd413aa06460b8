"""The embedded model as layers: the whole folder for workers, tokenizer and configuration alone for routers."""

import subprocess
import sys
from pathlib import Path

from .layers import LayerWriter, key_of

FOLDER = "opt/kvarn/models/smollm2-135m"
CONVERTER = "kvarn_engine.runtime.embedded"


class EmbeddedModel:
    """Lies converted in Kvarn's cache, where `kvarn up` and the tests use it too; a first conversion takes a minute."""

    def __init__(self, whole: Path, tokenizer: Path) -> None:
        self._whole = whole
        self._tokenizer = tokenizer

    def convert(self) -> None:
        """Leaves what is there already."""
        command = [sys.executable, "-m", CONVERTER, "--to", str(self._whole), "--tokenizer-only", str(self._tokenizer)]
        subprocess.run(command, check=True, stdout=sys.stderr)

    def key(self) -> str:
        stamps = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in self._whole.iterdir()]
        return key_of([Path(__file__).read_bytes(), *sorted(stamps)])

    def fill_whole(self, writer: LayerWriter) -> None:
        writer.tree(FOLDER, self._whole)

    def fill_tokenizer(self, writer: LayerWriter) -> None:
        writer.tree(FOLDER, self._tokenizer)
