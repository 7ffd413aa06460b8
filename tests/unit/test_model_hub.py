"""What is asked of the hub's client, and what a person hears when it fails."""

from collections.abc import Mapping
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from kvarn_engine.model_folder import ModelNotFound, resolve_model, resolve_tokenizer


class Hub:
    """Stands in for `snapshot_download`."""

    def __init__(self, answer: Path) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, object]] = []

    def __call__(self, name: str, revision: str | None, allow_patterns: list[str]) -> str:
        self.asked.append({"name": name, "revision": revision, "weights": "*.safetensors" in allow_patterns})
        assert "*.py" not in allow_patterns
        assert "*.bin" not in allow_patterns
        return str(self.answer)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    standing_in = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", standing_in)
    return standing_in


def test_a_revision_is_asked_for(hub: Hub) -> None:
    assert resolve_model("org/name", "v1.0") == hub.answer
    assert resolve_model("org/name") == hub.answer
    assert hub.asked == [
        {"name": "org/name", "revision": "v1.0", "weights": True},
        {"name": "org/name", "revision": None, "weights": True},
    ]


def test_a_router_asks_for_no_weights(hub: Hub) -> None:
    assert resolve_tokenizer("org/name", "v1.0") == hub.answer
    assert hub.asked == [{"name": "org/name", "revision": "v1.0", "weights": False}]


def test_what_is_no_name_is_told_without_asking() -> None:
    with pytest.raises(ModelNotFound, match="'no/such/folder' is neither a folder here nor the name of a hub model"):
        resolve_model("no/such/folder")


def test_a_hub_out_of_reach_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelNotFound, match="'org/name' is no folder here, and the hub cannot be reached now"):
        resolve_model("org/name")


def test_a_revision_of_a_folder_is_only_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(str(tmp_path), "v1.0") == tmp_path
    assert [record.message for record in caplog.records] == ["only hub models have revisions"]


def test_a_hub_cache_of_another_user_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        raise PermissionError(13, "Permission denied", "/cache/hf/hub/.locks")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelNotFound, match=r"^/cache/hf/hub/\.locks cannot be written .*: set HF_HOME"):
        resolve_model("org/name")


def test_the_group_of_a_shared_hub_cache_may_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        (tmp_path / "hf").mkdir()
        return str(tmp_path)

    tmp_path.chmod(0o775)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    resolve_model("org/name")
    assert (tmp_path / "hf").stat().st_mode & 0o777 == 0o775
