"""Models from `https://host/model.tar.gz` or `.zip`, fetched once into the cache. Called by `model_folder`.

A reference may end in `#sha256=HEX`; without TLS (`http://`) it must. Nothing in an archive is trusted: only known
kinds of files are taken, no links, nothing outside the folder, and no more than an archive of its size can hold.
"""

import hashlib
import logging
import shutil
import ssl
import time
import urllib.request
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from kvarn_engine.archive_unpack import UnsafeArchive, is_archive_name, unpack
from kvarn_engine.cache_folder import cache_root, fill_once
from kvarn_engine.model_errors import ModelNotFound
from kvarn_engine.model_files import MODEL_PATTERNS

logger = logging.getLogger("kvarn.models")

MARK = "kvarn-archive.txt"
"""Written last: a folder with it is complete. Holds where in the folder the model lies."""

SILENCE_TIMEOUT_S = 60.0
MAX_ARCHIVE_BYTES = 1 << 40
_PIECE_BYTES = 1 << 20
_DIGEST_LENGTH = 64


class Response(Protocol):
    headers: Message

    def read(self, amount: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ArchiveReference:
    url: str
    sha256: str
    """Hex digits in lower case; empty when the reference has none."""

    @property
    def shown(self) -> str:
        """For messages: without a signed query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{parts.path}"


def is_archive_reference(reference: str) -> bool:
    return reference.startswith(("https://", "http://"))


def fetch_archive(reference: str, patterns: tuple[str, ...] = MODEL_PATTERNS) -> Path:
    """The model's folder in the cache, downloaded and unpacked when it is not there yet. Raises ModelNotFound."""
    archive = parse_reference(reference)
    whole = _folder_of(reference, MODEL_PATTERNS)
    folder = whole if _is_complete(whole) else _folder_of(reference, patterns)

    def fill(scratch: Path) -> None:
        _download_into(archive, scratch, patterns)

    fill_once(folder, lambda: _is_complete(folder), fill)
    return folder / (folder / MARK).read_text().strip()


def _folder_of(reference: str, patterns: tuple[str, ...]) -> Path:
    key = hashlib.blake2b(repr((reference, patterns)).encode(), digest_size=8).hexdigest()
    return cache_root() / f"archive-{key}"


def _is_complete(folder: Path) -> bool:
    return (folder / MARK).is_file()


def parse_reference(reference: str) -> ArchiveReference:
    address, _, fragment = reference.partition("#")
    parts = urlsplit(address)
    if not parts.hostname or not is_archive_name(parts.path):
        raise ModelNotFound(f"{parts.scheme}://{parts.hostname}{parts.path} is no .tar, .tar.gz, .tgz or .zip archive")
    if parts.username or parts.password:
        raise ModelNotFound(f"the address of {parts.hostname}{parts.path} must not hold a user name or password")
    name, _, digest = fragment.partition("=")
    archive = ArchiveReference(address, digest.lower())
    if fragment and (name != "sha256" or len(digest) != _DIGEST_LENGTH or not _is_hex(digest)):
        raise ModelNotFound(f"{archive.shown}: only #sha256= and 64 hex digits may follow a model's address")
    if parts.scheme == "http" and not digest:
        raise ModelNotFound(f"{archive.shown}: an address without TLS must end in #sha256= and the archive's digest")
    return archive


def _is_hex(text: str) -> bool:
    return all(character in "0123456789abcdefABCDEF" for character in text)


def _download_into(archive: ArchiveReference, folder: Path, patterns: tuple[str, ...]) -> None:
    began = time.monotonic()
    logger.info("downloading model", extra={"source": archive.shown})
    packed = folder / f".{PurePosixPath(urlsplit(archive.url).path).name}"
    try:
        with _open(archive.url) as response, packed.open("wb") as file:
            digest = _copy(response, file, archive)
    except HTTPError as error:
        error.close()
        raise ModelNotFound(f"{archive.shown}: the server answers {error.code} {error.reason}") from error
    except URLError as error:
        raise ModelNotFound(f"{archive.shown} cannot be fetched: {_plain(error)}") from error
    except TimeoutError as error:
        raise ModelNotFound(f"{archive.shown}: nothing came for {SILENCE_TIMEOUT_S:g} s") from error
    except (HTTPException, ConnectionError, ssl.SSLError) as error:
        raise ModelNotFound(f"{archive.shown}: the download broke off ({type(error).__name__})") from error
    if archive.sha256 and digest != archive.sha256:
        raise ModelNotFound(f"{archive.shown} has SHA-256 {digest}, not {archive.sha256}")
    try:
        unpack(packed, folder, patterns)
    except UnsafeArchive as error:
        raise ModelNotFound(f"{archive.shown}: {error}") from error
    packed.unlink()
    (folder / MARK).write_text(_model_root(folder, archive.shown) + "\n")
    logger.info("model downloaded", extra={"source": archive.shown, "seconds": round(time.monotonic() - began, 1)})


def _copy(response: Response, file: IO[bytes], archive: ArchiveReference) -> str:
    """The SHA-256 of what was copied."""
    shown = archive.shown
    announced = int(response.headers.get("Content-Length") or 0)
    # The end of such an answer cannot be told from a broken connection.
    if not announced and not archive.sha256 and "Transfer-Encoding" not in response.headers:
        raise ModelNotFound(f"{shown}: the server does not tell its size, so the address must end in #sha256=")
    room = min(shutil.disk_usage(file.fileno()).free, MAX_ARCHIVE_BYTES)
    if announced > room:
        raise ModelNotFound(f"{shown} has {announced} bytes, the cache has room for {room}")
    digest, received = hashlib.sha256(), 0
    while piece := response.read(_PIECE_BYTES):
        received += len(piece)
        if received > MAX_ARCHIVE_BYTES:
            raise ModelNotFound(f"{shown} has more than {MAX_ARCHIVE_BYTES} bytes")
        digest.update(piece)
        file.write(piece)
    if announced and received != announced:
        raise ModelNotFound(f"{shown}: the download ended after {received} of {announced} bytes")
    return digest.hexdigest()


def _model_root(folder: Path, shown: str) -> str:
    """Archives often hold one folder that holds the model."""
    found = sorted(folder.rglob("config.json"), key=lambda path: len(path.parts))
    if not found:
        raise ModelNotFound(f"{shown} holds no config.json")
    if len(found) > 1 and len(found[0].parts) == len(found[1].parts):
        raise ModelNotFound(f"{shown} holds several models")
    return str(found[0].parent.relative_to(folder))


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect may not leave TLS."""

    def redirect_request(  # type: ignore[no-untyped-def]
        self, req, fp, code, msg, headers, newurl
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https://") and not newurl.startswith("https://"):
            raise URLError("it redirects to an address without TLS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str) -> "urllib.response.addinfourl":
    """Certificates are checked against the system's authorities, or those of `SSL_CERT_FILE`."""
    tls = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    opener = urllib.request.build_opener(tls, _SafeRedirects())
    answer: urllib.response.addinfourl = opener.open(url, timeout=SILENCE_TIMEOUT_S)
    return answer


def _plain(error: URLError) -> str:
    reason = error.reason
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message})"
    return str(reason)
