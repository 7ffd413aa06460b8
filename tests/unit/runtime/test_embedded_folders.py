"""Where the embedded model is put: the folders that image builds ask for."""

from pathlib import Path

import pytest
from kvarn_engine.model_folder import ModelNotFound, eos_token_ids, render_fingerprint, write_conversion_mark
from kvarn_engine.runtime.embedded import convert, copy_without_weights, main

FILES = {
    "config.json": '{"eos_token_id": 7}',
    "generation_config.json": '{"eos_token_id": [2, 3]}',
    "tokenizer.json": "{}",
    "tokenizer_config.json": '{"a": 1}',
    "chat_template.jinja": "{{ messages }}",
    "model.safetensors": "weights",
}


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_text(content)
    write_conversion_mark(folder)
    return folder


def test_a_router_gets_all_but_weights_and_renders_alike(converted: Path, tmp_path: Path) -> None:
    light = tmp_path / "deep" / "router"
    assert main(["--to", str(converted), "--tokenizer-only", str(light)]) == 0
    assert {path.name for path in light.iterdir()} == set(FILES) - {"model.safetensors"}
    assert render_fingerprint(light) == render_fingerprint(converted)
    assert eos_token_ids(light) == eos_token_ids(converted) == {2, 3}


def test_a_changed_tokenizer_changes_the_fingerprint(converted: Path, tmp_path: Path) -> None:
    """So that the equality above means something."""
    copy_without_weights(converted, tmp_path / "router")
    (tmp_path / "router" / "tokenizer.json").write_text('{"b": 2}')
    assert render_fingerprint(tmp_path / "router") != render_fingerprint(converted)


def test_a_folder_with_something_else_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ModelNotFound, match="holds something else"):
        convert(tmp_path)
    assert main(["--to", str(tmp_path)]) == 1
    assert (tmp_path / "letter.txt").read_text() == "dear"
