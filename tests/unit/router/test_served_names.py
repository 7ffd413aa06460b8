"""What a model is called when nobody says so."""

from pathlib import Path

import pytest
from kvarn_router.api.settings import ApiSettings
from kvarn_router.app import served_names
from kvarn_router.settings import ModelSettings, RouterSettings


@pytest.mark.parametrize(
    ("reference", "names"),
    [
        ("org/model", ("org/model",)),
        ("https://host/models/small.tar.gz?key=secret#sha256=00", ("small",)),
    ],
)
def test_names_follow_the_reference(reference: str, names: tuple[str, ...]) -> None:
    assert served_names(RouterSettings(tokenizer=ModelSettings(reference))) == names


def test_a_folder_is_known_by_its_name_and_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    assert served_names(RouterSettings(tokenizer=ModelSettings(str(folder)))) == ("tiny", str(folder))


def test_given_names_go_before() -> None:
    settings = RouterSettings(tokenizer=ModelSettings("org/model"), api=ApiSettings(served_model_name=("a", "b")))
    assert served_names(settings) == ("a", "b")
