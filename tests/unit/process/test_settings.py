"""Strict settings: precedence, types, and that nothing unknown passes."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from kvarn_engine.process.settings import HelpRequested, SettingsError, load_settings, load_settings_or_exit


@dataclass(frozen=True)
class ServerSettings:
    port: int
    """Where to listen."""

    ping_s: float = 15.0
    keys: tuple[str, ...] = ()
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.port < 0:
            raise ValueError("port is negative")


@dataclass(frozen=True)
class ModelSettings:
    model: str = "tiny"
    warm: bool = True


@dataclass(frozen=True)
class Settings:
    server: ServerSettings
    model: ModelSettings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kvarn.toml"
    path.write_text('[server]\nport = 1\nping_s = 2\nkeys = ["f"]\n[model]\nmodel = "file"\nwarm = false\n')
    return path


def test_defaults_stand_when_nothing_is_given() -> None:
    settings = load_settings(Settings, ["--port", "7"], {"PATH": "ignored"})
    assert settings == Settings(ServerSettings(port=7), ModelSettings())


def test_flag_beats_environment_beats_file_beats_default(file: Path) -> None:
    argv = ["--config", str(file), "--model", "flag"]
    settings = load_settings(Settings, argv, {"KVARN_MODEL": "env", "KVARN_PORT": "2"})
    assert settings.model.model == "flag"
    assert settings.server.port == 2
    assert settings.server.ping_s == 2.0
    assert settings.server.limit is None
    assert not settings.model.warm


def test_the_file_may_be_named_by_the_environment(file: Path) -> None:
    assert load_settings(Settings, [], {"KVARN_CONFIG": str(file)}).server.port == 1


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--no-warm"], False),
        (["--no-warm", "--warm"], True),
        (["--warm=off"], False),
    ],
)
def test_booleans(argv: list[str], expected: bool) -> None:
    assert load_settings(Settings, ["--port=1", *argv], {}).model.warm is expected


def test_lists_and_optional_values() -> None:
    server = load_settings(Settings, ["--port=1", "--keys=a, b", "--limit", "3"], {}).server
    assert server.keys == ("a", "b")
    assert server.limit == 3
    assert load_settings(Settings, ["--port=1"], {"KVARN_LIMIT": "none"}).server.limit is None


@pytest.mark.parametrize(
    ("argv", "env", "named"),
    [
        (["--port", "x"], {}, "flag --port: 'x' is not an integer"),
        (["--port"], {}, "flag --port needs a value"),
        (["--prot", "1"], {}, "unknown flag --prot"),
        (["stray"], {}, "unknown flag stray"),
        ([], {}, "group server: must be given: port"),
        (["--port=-1"], {}, "group server: port is negative"),
        (["--port=1"], {"KVARN_PING_S": "soon"}, "variable KVARN_PING_S: 'soon' is not a number"),
        (["--port=1"], {"KVARN_PROT": "1"}, "unknown variable KVARN_PROT"),
        (["--port=1", "--warm=maybe"], {}, "flag --warm: 'maybe' is not true or false"),
        (["--config", "/nowhere/kvarn.toml"], {}, "file /nowhere/kvarn.toml"),
    ],
)
def test_what_is_wrong_is_named(argv: list[str], env: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(Settings, argv, env)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[server]\nprot = 1\n", "unknown key [server] prot"),
        ("[sever]\nport = 1\n", "unknown key [sever] port"),
        ("port = 1\n", "key port stands outside a table"),
        ('[server]\nport = "1"\n', "[server] port: '1' is not an integer"),
        ("[server]\nport = true\n", "[server] port: True is not an integer"),
        ("[server]\nkeys = [1]\n", "[server] keys: [1] is not a list of strings"),
        ("[server\n", "kvarn.toml"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "kvarn.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(Settings, ["--config", str(path)], {})
    assert named in str(caught.value)


def test_cache_and_log_variables_belong_to_others() -> None:
    env = {"KVARN_CACHE": "/cache", "KVARN_LOG_LEVEL": "debug"}
    assert load_settings(Settings, ["--port=1"], env).server.port == 1


def test_help_shows_flags_defaults_and_docs() -> None:
    with pytest.raises(HelpRequested) as asked:
        load_settings(Settings, ["--help"], {})
    assert "--port INT  Where to listen." in str(asked.value)
    assert "--warm / --no-warm (default True)" in str(asked.value)


def test_the_process_edge_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_settings_or_exit(Settings, ["--prot"], {})
    assert caught.value.code == 2
    assert "unknown flag --prot" in capsys.readouterr().err
