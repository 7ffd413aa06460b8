"""The daemonless build: layers that depend on their content alone, and an archive whose digests are true."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from deploy.docker.imagekit.archive import Image, write_archive
from deploy.docker.imagekit.interpreter import fill_base
from deploy.docker.imagekit.layers import Layer, LayerCache, LayerWriter, key_of
from deploy.docker.imagekit.project import Project
from deploy.docker.imagekit.unused import is_used

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cache(tmp_path: Path) -> LayerCache:
    return LayerCache(tmp_path / "layers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "secretive.txt").write_text("text")
    (folder / "deep" / "secretive.txt").chmod(0o600)
    (folder / "program").write_text("run")
    (folder / "program").chmod(0o700)
    return folder


def members(layer: Layer) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(layer.path) as tar:
        return {member.name: member for member in tar}


def test_files_belong_to_root_and_everybody_may_read_them(cache: LayerCache, folder: Path) -> None:
    layer = cache.layer("one", "key", lambda writer: writer.tree("opt", folder))
    found = members(layer)
    modes = {name: (member.uid, member.gid, member.mode) for name, member in found.items()}
    assert modes == {
        "opt": (0, 0, 0o755),
        "opt/deep": (0, 0, 0o755),
        "opt/deep/secretive.txt": (0, 0, 0o644),
        "opt/program": (0, 0, 0o755),
    }
    assert found["opt/program"].mtime == int((folder / "program").stat().st_mtime)


def test_digest_and_size_are_those_of_the_file(cache: LayerCache, folder: Path) -> None:
    layer = cache.layer("one", "key", lambda writer: writer.tree("opt", folder))
    content = layer.path.read_bytes()
    assert layer.digest == hashlib.sha256(content).hexdigest()
    assert layer.size == len(content)


def test_a_layer_is_written_once_for_each_key(cache: LayerCache, tmp_path: Path) -> None:
    def fill(text: bytes) -> Layer:
        return cache.layer("one", key_of([text]), lambda writer: written.append(text) or writer.data("file", text))

    written: list[bytes] = []
    first = fill(b"old")
    assert fill(b"old") == first
    second = fill(b"new")
    assert written == [b"old", b"new"]
    assert second.digest != first.digest
    assert sorted((tmp_path / "layers").iterdir()) == [second.path.with_suffix(".json"), second.path]


def test_a_cut_off_layer_is_written_again(cache: LayerCache, tmp_path: Path) -> None:
    def fails(writer: LayerWriter) -> None:
        writer.data("half", b"x")
        raise OSError

    with pytest.raises(OSError):
        cache.layer("one", "key", fails)
    assert list((tmp_path / "layers").iterdir()) == []
    assert "whole" in members(cache.layer("one", "key", lambda writer: writer.data("whole", b"x")))


def test_keys_know_where_parts_end() -> None:
    assert key_of(["ab", "c"]) != key_of(["a", "bc"])


def read_archive(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}


@pytest.fixture
def images(cache: LayerCache) -> list[Image]:
    shared = cache.layer("base", "key", lambda writer: writer.data("base", b"b"))
    own = cache.layer("own", "key", lambda writer: writer.data("own", b"o"))
    return [
        Image("localhost/a:1", (shared,), {"A": "b"}, ("run",), "65532"),
        Image("localhost/b:1", (shared, own)),
    ]


def test_every_blob_is_what_its_name_says_and_all_are_there(images: list[Image]) -> None:
    sink = io.BytesIO()
    digests = write_archive(images, sink)
    files = read_archive(sink.getvalue())
    blobs = {name.rpartition("/")[2]: data for name, data in files.items() if name.startswith("blobs/")}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in blobs.items()} == {name: name for name in blobs}
    entries = json.loads(files["index.json"])["manifests"]
    assert {each["annotations"]["io.containerd.image.name"]: each["digest"] for each in entries} == digests
    for entry, docker in zip(entries, json.loads(files["manifest.json"]), strict=True):
        manifest = json.loads(blobs[entry["digest"].removeprefix("sha256:")])
        config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
        layers = [layer["digest"] for layer in manifest["layers"]]
        assert config["rootfs"]["diff_ids"] == layers
        assert docker["Layers"] == [f"blobs/sha256/{digest.removeprefix('sha256:')}" for digest in layers]
        assert all(name in files for name in [*docker["Layers"], docker["Config"]])
    first = json.loads(files[json.loads(files["manifest.json"])[0]["Config"]])["config"]
    assert first == {"Env": ["A=b"], "Entrypoint": ["run"], "WorkingDir": "/", "User": "65532"}


def test_layers_that_the_importer_has_are_left_out(images: list[Image]) -> None:
    shared, own = images[1].layers
    sink = io.BytesIO()
    digests = write_archive(images, sink, {f"sha256:{shared.digest}"})
    files = read_archive(sink.getvalue())
    assert f"blobs/sha256/{shared.digest}" not in files
    assert f"blobs/sha256/{own.digest}" in files
    assert digests == write_archive(images, io.BytesIO())


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("torch/bin/torch_shm_manager", True),
        ("torch/bin/protoc", False),
        ("torch/testing/__init__.py", True),
        ("numpy/_core/tests/test_api.py", False),
        ("tests/test_of_a_package_named_so.py", True),
        ("numpy/__pycache__/__init__.cpython-311.pyc", True),
        ("numpy/__pycache__/__init__.cpython-311.opt-1.pyc", False),
        ("kubernetes/client/api_client.py", True),
        ("kubernetes/aio/client/api_client.py", False),
        ("numpy/__init__.pyi", False),
    ],
)
def test_what_of_a_package_is_used(name: str, used: bool) -> None:
    assert is_used(name) is used


def test_the_project_s_layer_does_not_depend_on_where_it_lies(tmp_path: Path) -> None:
    """Nor on when: two checkouts of one commit make one layer."""

    def build(root: Path) -> Layer:
        project = Project(root)
        return LayerCache(tmp_path / f"of-{root.name}").layer("project", project.key(), project.fill)

    roots = [tmp_path / "here", tmp_path / "there"]
    for age, root in enumerate(roots):
        package = root / "proto" / "kvarn_proto"
        package.mkdir(parents=True)
        (package / "module.py").write_text("VALUE = 1\n")
        os.utime(package / "module.py", (age, age))
        (root / "pyproject.toml").write_text(
            '[project]\nname = "kvarn"\nversion = "1.2.3"\n'
            '[tool.hatch.build.targets.wheel]\npackages = ["proto/kvarn_proto"]\n'
        )
    first, second = map(build, roots)
    assert first.digest == second.digest
    names = {name.rpartition("site-packages/")[2] for name in members(first)}
    assert {"kvarn_proto/module.py", "kvarn-1.2.3.dist-info/METADATA"} <= names
    assert any(name.startswith("kvarn_proto/__pycache__/module.") for name in names)
    (roots[1] / "proto" / "kvarn_proto" / "module.py").write_text("VALUE = 2\n")
    assert build(roots[1]).digest != first.digest


def test_the_interpreter_runs_where_the_image_puts_it(cache: LayerCache, tmp_path: Path) -> None:
    """Unpacked elsewhere, with its own standard library and libraries, it imports what needs both."""
    layer = cache.layer("base", "key", fill_base)
    root = tmp_path / "root"
    with tarfile.open(layer.path) as tar:
        tar.extractall(root, filter=lambda member, path: member)
    assert (root / "etc/passwd").read_text().splitlines()[1].split(":")[2] == "65532"
    python = root / "usr/local/bin/python"
    libraries = next(root.glob("usr/lib/**/libc.so.6")).parent
    script = "import ssl, sqlite3, ctypes, zoneinfo, sys; print(sys.prefix, ssl.OPENSSL_VERSION.split()[0])"
    environment = {"LD_LIBRARY_PATH": str(libraries), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(root / "usr/local"), "OpenSSL"], done.stderr
    assert not (root / "usr/local/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "test").exists()
