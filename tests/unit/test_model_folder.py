"""Model folders: references, fingerprints and end-of-sequence ids, without torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kvarn_engine.cache_folder import cache_root
from kvarn_engine.model_folder import (
    EMBEDDED_MODEL,
    ModelNotFound,
    eos_token_ids,
    is_converted,
    model_revision,
    render_fingerprint,
    resolve_model,
    write_conversion_mark,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"\x01" * 64)
    return tmp_path


def test_a_folder_resolves_to_itself(folder: Path) -> None:
    assert resolve_model(str(folder)) == folder


def test_a_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        resolve_model(str(tmp_path))


def test_a_converted_embedded_model_needs_no_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVARN_CACHE", str(folder))
    assert cache_root() == folder
    assert not is_converted()
    target = folder / EMBEDDED_MODEL
    target.mkdir()
    write_conversion_mark(target)
    assert is_converted()
    assert resolve_model(EMBEDDED_MODEL) == target


def test_render_fingerprint_follows_tokenizer_and_template(folder: Path) -> None:
    before = render_fingerprint(folder)
    (folder / "model.safetensors").write_bytes(b"\x02" * 64)
    assert render_fingerprint(folder) == before
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    with_template = render_fingerprint(folder)
    (folder / "tokenizer.json").write_text('{"a": 1}')
    assert len({before, with_template, render_fingerprint(folder)}) == 3


def test_model_revision_follows_configuration_and_weights(folder: Path) -> None:
    before = model_revision(folder)
    (folder / "tokenizer.json").write_text("[]")
    assert model_revision(folder) == before
    (folder / "model.safetensors").write_bytes(b"\x02" * 64)
    other_weights = model_revision(folder)
    (folder / "config.json").write_text('{"eos_token_id": 3}')
    assert len({before, other_weights, model_revision(folder)}) == 3


@pytest.mark.parametrize(("given", "expected"), [(5, {5}), ([5, 6], {5, 6}), (None, {2})])
def test_generation_config_goes_before_config(folder: Path, given: object, expected: set[int]) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": given}))
    assert eos_token_ids(folder) == expected


def test_importing_does_not_reach_torch() -> None:
    code = "import sys, kvarn_engine.model_folder; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
