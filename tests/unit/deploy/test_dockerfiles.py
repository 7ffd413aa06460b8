"""The Dockerfiles, read as text: pinned, without root, without torch where none belongs, for any builder."""

import fnmatch
import itertools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.docker.imagekit.distributions import read_role
from deploy.docker.imagekit.roles import ENTRYPOINTS, USER, environment

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile"))
ABOUT = "org.opencontainers.image"
BASE = "${BASE_IMAGE}${BASE_DIGEST}"


@dataclass(frozen=True)
class Dockerfile:
    path: Path
    lines: tuple[tuple[str, str], ...]
    """Instruction and its arguments, continuation lines joined, comments dropped."""

    @property
    def role(self) -> str:
        return self.path.name.partition(".")[0].partition("-")[0]

    def arguments(self, instruction: str) -> list[str]:
        return [arguments for name, arguments in self.lines if name == instruction]

    @property
    def final(self) -> tuple[tuple[str, str], ...]:
        """The stage that becomes the image."""
        start = max(index for index, (name, _) in enumerate(self.lines) if name == "FROM")
        return self.lines[start:]


def read(path: Path) -> Dockerfile:
    text = re.sub(r"(?m)^\s*#.*\n", "", path.read_text()).replace("\\\n", " ")
    words = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return Dockerfile(path, tuple((name, " ".join(rest.split())) for name, rest in words))


@pytest.fixture(params=FILES, ids=lambda path: path.name)
def dockerfile(request: pytest.FixtureRequest) -> Dockerfile:
    return read(request.param)


def test_every_image_is_here() -> None:
    assert [path.name.removesuffix(".Dockerfile") for path in FILES] == ["operator", "router", "worker-cuda", "worker"]


def test_the_base_is_pinned_and_can_be_pinned_harder(dockerfile: Dockerfile) -> None:
    defaults = dict(argument.partition("=")[::2] for argument in dockerfile.arguments("ARG"))
    assert re.fullmatch(r"python:\d+\.\d+-slim-[a-z]+", defaults["BASE_IMAGE"])
    assert defaults["BASE_DIGEST"] == ""
    stages = [arguments.partition(" AS ")[0] for arguments in dockerfile.arguments("FROM")]
    assert set(stages) == {BASE}
    assert len(stages) >= 2, "the tools that build stay in a stage of their own"


def test_it_runs_as_a_numbered_user(dockerfile: Dockerfile) -> None:
    names = [name for name, _ in dockerfile.final]
    assert dict(dockerfile.final)["USER"] == f"{USER}:{USER}"
    assert names.index("USER") > max(index for index, name in enumerate(names) if name == "COPY")
    assert "RUN" not in names, "nothing runs in the stage that becomes the image"


def test_program_and_environment_are_those_of_the_daemonless_build(dockerfile: Dockerfile) -> None:
    program = ", ".join(f'"{word}"' for word in ENTRYPOINTS[dockerfile.role])
    assert dict(dockerfile.final)["ENTRYPOINT"] == f"[{program}]"
    said = dict(word.split("=", 1) for word in dict(dockerfile.final)["ENV"].split())
    wanted = dict(environment(dockerfile.role))
    if dockerfile.path.name == "worker-cuda.Dockerfile":
        wanted.pop("NUMBA_CACHE_DIR")
    assert wanted.items() <= said.items()


def test_labels_are_those_of_the_daemonless_build(dockerfile: Dockerfile) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    labels = dict(word.split("=", 1) for word in dict(dockerfile.final)["LABEL"].split())
    assert labels == {f"{ABOUT}.title": f"kvarn-{dockerfile.role}", f"{ABOUT}.version": version}


def test_packages_are_those_of_the_constraints(dockerfile: Dockerfile) -> None:
    installs = [
        command
        for arguments in dockerfile.arguments("RUN")
        for command in arguments.split("&&")
        if "pip install" in command
    ]
    assert installs
    pinned = re.compile(r"-c constraints\.txt|--no-deps \.|--no-deps [a-z0-9-]+==[\d.]+")
    assert [command for command in installs if not pinned.search(command)] == []


def test_every_stage_that_installs_asks_the_index_that_it_is_told(dockerfile: Dockerfile) -> None:
    """pip reads the variable that an argument becomes. Without one it asks the index that it asks by default."""
    starts = [index for index, (name, _) in enumerate(dockerfile.lines) if name == "FROM"]
    stages = [dockerfile.lines[start:end] for start, end in itertools.pairwise([*starts, len(dockerfile.lines)])]
    installing = [stage for stage in stages if any("pip install" in arguments for _, arguments in stage)]
    assert installing
    for stage in installing:
        first = next(index for index, (_, arguments) in enumerate(stage) if "pip install" in arguments)
        assert ("ARG", "PIP_INDEX_URL") in stage[:first]


def test_any_builder_understands_it(dockerfile: Dockerfile) -> None:
    """No downloads by ADD, nothing of BuildKit alone, no host of a registry, no secret in an argument."""
    text = dockerfile.path.read_text()
    assert dockerfile.arguments("ADD") == []
    for pattern in (r"^# *syntax=", r"RUN +--", r"<<", r":latest", r"curl|wget|apt-get", r"(?i)token|password|secret"):
        assert re.search(pattern, re.sub(r"(?i)tokenizer", "", text), re.MULTILINE) is None, pattern
    assert re.findall(r"https?://\S+", text.replace("https://...", "")) == []


def test_what_is_copied_reaches_the_builder(dockerfile: Dockerfile) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for arguments in dockerfile.arguments("COPY"):
        if "--from" in arguments:
            continue
        for source in arguments.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert any(fnmatch.fnmatch(source, pattern) or source.startswith(f"{pattern}/") for pattern in allowed)


def test_nothing_but_tokenizer_files_reaches_the_router_from_torch() -> None:
    copies = [arguments for name, arguments in read(ROOT / "deploy/docker/router.Dockerfile").final if name == "COPY"]
    assert [each for each in copies if "--from=builder" not in each] == [
        "--from=model /opt/kvarn/models /opt/kvarn/models"
    ]


@pytest.mark.parametrize(("role", "has_torch"), [("router", False), ("operator", False), ("worker", True)])
def test_torch_is_in_the_worker_alone(role: str, has_torch: bool) -> None:
    names = {str(each.metadata["Name"]).lower() for each in read_role(role, ROOT / "pyproject.toml").distributions}
    assert ("torch" in names, "transformers" in names) == (has_torch, has_torch)
    assert "grpcio" in names
