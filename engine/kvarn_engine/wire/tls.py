"""Mutual TLS between the processes: one certificate, key and CA bundle from files that may be renewed at any time.

Built by each composition root from its `TlsSettings`; used by `channels` on both ends of a hop. It reads the files
again when they change, on whatever thread asks, and keeps the last good set when a new one is broken.
"""

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
from prometheus_client import CollectorRegistry, Gauge

from kvarn_engine.wire.certificate_dates import BadCertificate, expiry_times

logger = logging.getLogger("kvarn.tls")

Signature = tuple[tuple[int, int, int], ...]


class TlsError(Exception):
    """A certificate, key or CA file cannot be used. The message names the file."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Settings group of every process that speaks gRPC. All three files or none."""

    tls_cert_file: str = ""
    """PEM certificate chain of this process; with it, connections between processes are encrypted and checked."""

    tls_key_file: str = ""
    """PEM private key of that certificate, without a password."""

    tls_ca_file: str = ""
    """PEM certificates of the authorities that peers' certificates must come from."""

    tls_server_name: str = "kvarn-worker"
    """DNS name that a worker's certificate must carry: peers are addressed by IP."""

    def __post_init__(self) -> None:
        names = ("tls_cert_file", "tls_key_file", "tls_ca_file")
        missing = [name for name in names if not getattr(self, name)]
        if 0 < len(missing) < len(names):
            raise ValueError(f"{', '.join(missing)} missing: TLS needs all of {', '.join(names)}, or none")
        if not self.tls_server_name:
            raise ValueError("tls_server_name is empty")

    @property
    def enabled(self) -> bool:
        return bool(self.tls_cert_file)


@dataclass(frozen=True, slots=True)
class Certificates:
    """One consistent set of file contents."""

    chain: bytes
    key: bytes
    authorities: bytes
    expires_at: float
    """Unix time from which peers refuse this process, or this process refuses all of them."""


class TlsFiles:
    """The files of one process. Any thread may ask; a lock keeps reads whole."""

    def __init__(self, settings: TlsSettings, now: Callable[[], float] = time.time) -> None:
        """Raises TlsError: a process does not start with files that cannot work."""
        assert settings.enabled
        self.server_name = settings.tls_server_name
        self._paths = (settings.tls_cert_file, settings.tls_key_file, settings.tls_ca_file)
        self._now = now
        self._lock = threading.Lock()
        self._seen: Signature | None = None
        self._told_expired = False
        self._current = self._read_twice()

    def current(self) -> Certificates:
        """The newest good set. A new one that is broken or expired is logged once and not used."""
        with self._lock:
            signature = _signature(self._paths)
            if signature != self._seen:
                self._seen = signature
                self._renew()
            self._tell_expiry()
            return self._current

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For one new channel. A channel keeps what it was opened with."""
        files = self.current()
        return grpc.ssl_channel_credentials(files.authorities, files.key, files.chain)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Clients must show a certificate of our authorities. Each handshake uses the files as they are then."""
        return grpc.dynamic_ssl_server_credentials(
            self._server_configuration(), self._server_configuration, require_client_authentication=True
        )

    def expose(self, registry: CollectorRegistry) -> None:
        """Add the expiry gauge, which looks at the files at each scrape."""
        gauge = Gauge(
            "kvarn_tls_certificate_expiry_seconds",
            "Unix time at which this process's certificate or its CA expires",
            registry=registry,
        )
        gauge.set_function(lambda: self.current().expires_at)

    def _server_configuration(self) -> grpc.ServerCertificateConfiguration:
        files = self.current()
        return grpc.ssl_server_certificate_configuration([(files.key, files.chain)], files.authorities)

    def _renew(self) -> None:
        try:
            self._current = self._read_twice()
        except TlsError as error:
            logger.error("new TLS files are not used", extra={"detail": str(error)})
            return
        self._told_expired = False
        logger.info("TLS files renewed", extra={"expires_at": round(self._current.expires_at)})

    def _tell_expiry(self) -> None:
        if not self._told_expired and self._current.expires_at <= self._now():
            self._told_expired = True
            logger.error("TLS certificate has expired", extra={"file": self._paths[0], "ca_file": self._paths[2]})

    def _read_twice(self) -> Certificates:
        """Files are replaced one after the other where no symbolic link turns them over together: a set that changes
        while it is read is read again, and one that does not fit together yet is seen as a change later."""
        while True:
            before = _signature(self._paths)
            files = _read(self._paths, self._now())
            if _signature(self._paths) == before:
                self._seen = before
                return files


def open_tls(settings: TlsSettings) -> TlsFiles | None:
    """None when TLS is off. Raises TlsError."""
    return TlsFiles(settings) if settings.enabled else None


def _signature(paths: tuple[str, ...]) -> Signature | None:
    """Changes whenever one of the files does. None while one of them is missing."""
    try:
        stats = [os.stat(path) for path in paths]
    except OSError:
        return None
    return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def _read(paths: tuple[str, str, str], now: float) -> Certificates:
    chain, key, authorities = (_content(path) for path in paths)
    cert_path, key_path, ca_path = paths
    certificate_expiry = min(_expiries(cert_path, chain))
    authority_expiry = max(_expiries(ca_path, authorities))
    for path, expiry in ((cert_path, certificate_expiry), (ca_path, authority_expiry)):
        if expiry <= now:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(expiry))
            raise TlsError(f"TLS file {path} has expired at {stamp} UTC")
    _check_pair(cert_path, key_path)
    return Certificates(chain, key, authorities, min(certificate_expiry, authority_expiry))


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TlsError(f"TLS file {path} cannot be read: {error.strerror}") from None


def _expiries(path: str, pem: bytes) -> list[float]:
    try:
        return expiry_times(pem)
    except BadCertificate as error:
        raise TlsError(f"TLS file {path}: {error}") from None


def _check_pair(cert_path: str, key_path: str) -> None:
    try:
        # The callback keeps OpenSSL from asking the terminal for a password.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_path, key_path, password=lambda: "")
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"TLS file {key_path} is no usable key for {cert_path}: {error}") from None
