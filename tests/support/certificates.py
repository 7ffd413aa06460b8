"""Certificate authorities made on the fly with the `openssl` command, and the TLS settings that use them."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from kvarn_engine.wire.tls import TlsSettings

SERVER_NAME = "kvarn-worker"


@dataclass(frozen=True, slots=True)
class Authority:
    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"

    def issue(self, into: Path, days: int = 30, dns_name: str = SERVER_NAME) -> TlsSettings:
        """Write or replace the three files of one process in `into`."""
        into.mkdir(exist_ok=True)
        extension = into / "extension"
        extension.write_text(f"subjectAltName=DNS:{dns_name}\n")
        request = into / "request"
        _openssl("req", "-new", *_key_into(into / "tls.key.new"), "-subj", f"/CN={dns_name}", "-out", str(request))
        signed = ("-CA", str(self.certificate), "-CAkey", str(self.key), "-CAcreateserial", "-days", str(days))
        files = ("-in", str(request), "-extfile", str(extension), "-out", str(into / "tls.crt.new"))
        _openssl("x509", "-req", *signed, *files)
        (into / "ca.crt.new").write_bytes(self.certificate.read_bytes())
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (into / f"{name}.new").replace(into / name)
        return settings_of(into)


def make_authority(folder: Path, name: str, days: int = 90) -> Authority:
    authority = Authority(folder, name)
    made = ("-x509", "-subj", f"/CN={name}", "-days", str(days), "-out", str(authority.certificate))
    _openssl("req", *_key_into(authority.key), *made)
    return authority


def settings_of(folder: Path) -> TlsSettings:
    return TlsSettings(
        tls_cert_file=str(folder / "tls.crt"),
        tls_key_file=str(folder / "tls.key"),
        tls_ca_file=str(folder / "ca.crt"),
    )


def _key_into(path: Path) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(path))


def _openssl(*arguments: str) -> None:
    subprocess.run(("openssl", *arguments), check=True, capture_output=True)
