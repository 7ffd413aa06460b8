"""Models from archives: fetched once over a real socket, checked, and unpacked without trust."""

import gzip
import hashlib
import io
import tarfile
import tracemalloc
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from kvarn_engine.archive_unpack import MAX_GROWTH
from kvarn_engine.model_archive import fetch_archive, parse_reference
from kvarn_engine.model_folder import ModelNotFound, render_fingerprint, resolve_model, resolve_tokenizer

from tests.support.certificates import make_authority
from tests.support.file_server import FileServer, file_server

MODEL = {"config.json": b"{}", "tokenizer.json": b'{"a": 1}', "model.safetensors": b"\x01" * 64}
NAME = "/model.tar.gz"


def tar_of(files: Mapping[str, bytes], mode: str = "w:gz", links: Mapping[str, str] | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.pax_headers = {"path": name} if "\0" in name else {}
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return packed.getvalue()


def zip_of(files: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def long_header(kind: bytes, claimed: int, held: int) -> bytes:
    """A tar that begins with a header of its own kind for the next file: a long name, or extended fields."""
    header = tarfile.TarInfo("long")
    header.type, header.size = kind, claimed
    return header.tobuf(tarfile.GNU_FORMAT) + bytes(held)


def with_digest(server: FileServer, content: bytes, path: str = NAME) -> str:
    """Serve it; its reference as it must be without TLS."""
    server.files[path] = content
    return f"{server.url}{path}#sha256={hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.fixture
def server(cache: Path) -> Iterator[FileServer]:
    with file_server() as running:
        yield running


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/m.tar.gz", tar_of(MODEL)),
        ("/m.tgz", tar_of({f"some/model/{name}": content for name, content in MODEL.items()})),
        ("/m.tar", tar_of(MODEL, "w")),
        ("/m.zip", zip_of({f"./{name}": content for name, content in MODEL.items()})),
    ],
)
def test_a_model_is_fetched_once(server: FileServer, path: str, content: bytes) -> None:
    reference = with_digest(server, content, path)
    folder = resolve_model(reference)
    assert {name: (folder / name).read_bytes() for name in MODEL} == MODEL
    assert resolve_model(reference) == folder
    assert server.requests == [path]


def test_only_model_files_are_taken(server: FileServer, cache: Path) -> None:
    content = tar_of({**MODEL, "run.py": b"", "pytorch_model.bin": b"pickle", "deep/notes.md": b""})
    folder = resolve_model(with_digest(server, content))
    assert {path.name for path in folder.iterdir()} == {*MODEL, "kvarn-archive.txt"}
    assert {path.name for path in cache.iterdir()} == {folder.name, f"{folder.name}.lock"}


def test_a_router_takes_no_weights_and_renders_alike(server: FileServer) -> None:
    reference = with_digest(server, tar_of(MODEL))
    light, full = resolve_tokenizer(reference), resolve_model(reference)
    assert not (light / "model.safetensors").exists()
    assert (full / "model.safetensors").exists()
    assert render_fingerprint(light) == render_fingerprint(full)
    assert resolve_tokenizer(reference) == full
    assert server.requests == [NAME, NAME]


@pytest.mark.parametrize("name", ["../escape.json", "a/../../escape.json", "/tmp/escape.json"])
@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_names_that_point_outside_are_refused(server: FileServer, name: str, pack: object, cache: Path) -> None:
    content = tar_of({**MODEL, name: b"{}"}) if pack is tar_of else zip_of({**MODEL, name: b"{}"})
    reference = with_digest(server, content, "/m.tar.gz" if pack is tar_of else "/m.zip")
    with pytest.raises(ModelNotFound, match="points outside"):
        resolve_model(reference)
    assert list(cache.parent.rglob("escape.json")) == []
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_links_are_refused(server: FileServer) -> None:
    content = tar_of(MODEL, links={"generation_config.json": "/etc/passwd"})
    with pytest.raises(ModelNotFound, match="no plain file"):
        resolve_model(with_digest(server, content))


def test_what_grows_too_much_is_refused(server: FileServer) -> None:
    grown = tar_of({**MODEL, "vocab.json": bytes(1_000_000)})
    assert len(grown) * MAX_GROWTH < 1_000_000
    with pytest.raises(ModelNotFound, match=f"more than {MAX_GROWTH} times"):
        resolve_model(with_digest(server, grown))


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        (NAME, gzip.compress(long_header(tarfile.XHDTYPE, 64 << 20, 64 << 20)), "a header in it has more"),
        (NAME, gzip.compress(long_header(tarfile.GNUTYPE_LONGNAME, 64 << 20, 64 << 20)), "a header in it has more"),
        ("/m.tar", long_header(tarfile.XHDTYPE, 1 << 50, 1024), "cannot be unpacked"),
        (NAME, tar_of({"notes.md": bytes(8 << 20), **MODEL}), f"more than {MAX_GROWTH} times"),
        ("/m.zip", zip_of(MODEL, zipfile.ZIP_BZIP2), "method other than deflate"),
        ("/m.zip", zip_of({f"{number:0>500}": b"" for number in range(9000)}), "a header in it has more"),
    ],
)
def test_memory_and_time_are_bounded(server: FileServer, path: str, content: bytes, reason: str) -> None:
    """What the archive itself says of its size is not believed."""
    reference = with_digest(server, content, path)
    tracemalloc.start()
    try:
        with pytest.raises(ModelNotFound, match=reason):
            resolve_model(reference)
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        (NAME, b"no archive", "cannot be unpacked"),
        ("/m.zip", b"no archive", "cannot be unpacked"),
        (NAME, tar_of({**MODEL, "model.safetensors": bytes(range(256)) * 9}, "w")[:2700], "cannot be unpacked"),
        (NAME, tar_of({**MODEL, "m\0/config.json": b"{}"}), "cannot be unpacked"),
        (NAME, tar_of({"tokenizer.json": b"{}"}), "no config.json"),
        (NAME, tar_of({"a/config.json": b"{}", "b/config.json": b"{}"}), "several models"),
        ("/m.zip", zip_of({"config.json": b"{}", "./config.json": b"{}"}), "one name twice"),
    ],
)
def test_what_is_no_model_is_refused(server: FileServer, path: str, content: bytes, reason: str) -> None:
    with pytest.raises(ModelNotFound, match=reason):
        resolve_model(with_digest(server, content, path))


def test_another_digest_is_refused_and_a_later_try_succeeds(server: FileServer, cache: Path) -> None:
    reference = with_digest(server, tar_of(MODEL))
    server.files[NAME] = tar_of({**MODEL, "config.json": b"[]"})
    with pytest.raises(ModelNotFound, match=r"has SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}$"):
        resolve_model(reference)
    server.files[NAME] = tar_of(MODEL)
    # The gzip header holds the time of packing.
    assert (resolve_model(with_digest(server, server.files[NAME])) / "config.json").read_bytes() == b"{}"
    assert sum(path.is_dir() for path in cache.iterdir()) == 1


def test_a_broken_download_leaves_nothing(server: FileServer, cache: Path) -> None:
    reference = with_digest(server, tar_of({**MODEL, "model.safetensors": bytes(range(256)) * 100}))
    server.cut_short.add(NAME)
    with pytest.raises(ModelNotFound, match=r"download (ended after|broke off)"):
        resolve_model(reference)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


@pytest.mark.usefixtures("cache")
def test_a_download_of_unknown_size_needs_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end could not be told from a broken connection."""
    authority = make_authority(tmp_path, "root")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    with file_server(authority.issue(tmp_path / "server", dns_name="localhost")) as server:
        server.without_length.add(NAME)
        reference = with_digest(server, tar_of(MODEL))
        with pytest.raises(ModelNotFound, match="does not tell its size"):
            resolve_model(reference.partition("#")[0])
        assert (resolve_model(reference) / "config.json").is_file()


def test_a_missing_archive_is_told_without_secrets(server: FileServer) -> None:
    reference = f"{server.url}/gone.zip?signature=secret#sha256={'0' * 64}"
    with pytest.raises(ModelNotFound, match=r"http://localhost/gone\.zip: the server answers 404") as caught:
        resolve_model(reference)
    assert server.requests == ["/gone.zip?signature=secret"]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("http://host/m.zip", "without TLS must end in #sha256="),
        ("https://host/model.safetensors", "no .tar"),
        ("https://host/m.zip#md5=00", "only #sha256="),
        ("https://host/m.zip#sha256=00", "only #sha256="),
        ("https:///m.zip", "no .tar"),
        ("https://user:secret@host/m.zip", "address of host/m.zip must not hold a user name or password"),
    ],
)
def test_wrong_references_are_refused_before_any_download(cache: Path, reference: str, reason: str) -> None:
    with pytest.raises(ModelNotFound, match=reason):
        fetch_archive(reference)
    assert not cache.exists()


def test_a_digest_may_be_written_in_capitals() -> None:
    assert parse_reference(f"https://host/m.zip#sha256={'AB' * 32}").sha256 == "ab" * 32


@pytest.mark.usefixtures("cache")
def test_tls_is_verified_and_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = make_authority(tmp_path, "root")
    tls = authority.issue(tmp_path / "server", dns_name="localhost")
    with file_server(tls) as secure, file_server() as plain:
        secure.files[NAME] = plain.files[NAME] = tar_of(MODEL)
        secure.redirects["/moved.tar.gz"] = secure.url + NAME
        secure.redirects["/unsafe.tar.gz"] = plain.url + NAME
        with pytest.raises(ModelNotFound, match="certificate is not trusted"):
            resolve_model(secure.url + NAME)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        assert (resolve_model(secure.url + NAME) / "config.json").is_file()
        assert (resolve_model(secure.url + "/moved.tar.gz") / "config.json").is_file()
        with pytest.raises(ModelNotFound, match="redirects to an address without TLS"):
            resolve_model(secure.url + "/unsafe.tar.gz")
        assert plain.requests == []


def test_a_cache_that_cannot_be_written_is_named(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVARN_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelNotFound, match="set KVARN_CACHE"):
        resolve_model(with_digest(server, tar_of(MODEL)))
