"""TLS files on disk: what is refused at the start, and what happens when they are renewed under a running process."""

import logging
import time
from pathlib import Path

import pytest
from kvarn_engine.wire.certificate_dates import BadCertificate, expiry_times
from kvarn_engine.wire.tls import TlsError, TlsFiles, TlsSettings, open_tls
from prometheus_client import CollectorRegistry

from tests.support.certificates import Authority, make_authority, settings_of

DAY_S = 86400.0
GAUGE = "kvarn_tls_certificate_expiry_seconds"


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path, "root")


def test_dates_are_those_of_the_certificates(tmp_path: Path, authority: Authority) -> None:
    began = time.time()
    authority.issue(tmp_path / "worker", days=30)
    far = make_authority(tmp_path, "far", days=365 * 60)
    bundle = (tmp_path / "worker" / "tls.crt").read_bytes() + authority.certificate.read_bytes()
    near, later, beyond_2050 = expiry_times(bundle + far.certificate.read_bytes())
    assert near == pytest.approx(began + 30 * DAY_S, abs=60)
    assert later == pytest.approx(began + 90 * DAY_S, abs=60)
    assert beyond_2050 == pytest.approx(began + 365 * 60 * DAY_S, abs=60)


def test_dates_of_something_else_are_refused(authority: Authority) -> None:
    with pytest.raises(BadCertificate, match="no PEM certificate"):
        expiry_times(b"not a certificate")
    lines = authority.certificate.read_text().splitlines()
    with pytest.raises(BadCertificate, match="cannot be read"):
        expiry_times("\n".join([lines[0], *lines[2:]]).encode())


def test_all_three_files_or_none() -> None:
    assert open_tls(TlsSettings()) is None
    with pytest.raises(ValueError, match="tls_key_file, tls_ca_file missing"):
        TlsSettings(tls_cert_file="tls.crt")


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
def test_start_names_the_file_that_is_missing_or_broken(tmp_path: Path, authority: Authority, name: str) -> None:
    folder = tmp_path / "worker"
    settings = authority.issue(folder)
    (folder / name).write_text("broken")
    with pytest.raises(TlsError, match=f"worker/{name}"):
        TlsFiles(settings)
    (folder / name).unlink()
    with pytest.raises(TlsError, match=f"worker/{name} cannot be read: No such file"):
        TlsFiles(settings)


def test_start_refuses_a_key_of_another_certificate(tmp_path: Path, authority: Authority) -> None:
    settings = authority.issue(tmp_path / "worker")
    authority.issue(tmp_path / "other")
    (tmp_path / "other" / "tls.key").replace(tmp_path / "worker" / "tls.key")
    with pytest.raises(TlsError, match=r"worker/tls\.key is no usable key for .*worker/tls\.crt"):
        TlsFiles(settings)


def test_start_refuses_what_has_expired(tmp_path: Path, authority: Authority) -> None:
    clock = Clock()
    settings = authority.issue(tmp_path / "worker", days=30)
    clock.now += 31 * DAY_S
    with pytest.raises(TlsError, match=r"worker/tls\.crt has expired at \d{4}-"):
        TlsFiles(settings, clock)
    authority.issue(tmp_path / "worker", days=900)
    clock.now += 60 * DAY_S
    with pytest.raises(TlsError, match=r"worker/ca\.crt has expired"):
        TlsFiles(settings, clock)


def test_renewed_files_are_used_and_the_gauge_follows(tmp_path: Path, authority: Authority) -> None:
    registry = CollectorRegistry()
    began = time.time()
    files = TlsFiles(authority.issue(tmp_path / "worker", days=30))
    files.expose(registry)
    first = files.current()
    assert registry.get_sample_value(GAUGE) == pytest.approx(began + 30 * DAY_S, abs=60)
    authority.issue(tmp_path / "worker", days=60)
    assert registry.get_sample_value(GAUGE) == pytest.approx(began + 60 * DAY_S, abs=60)
    assert files.current().chain == (tmp_path / "worker" / "tls.crt").read_bytes() != first.chain


def test_the_gauge_tells_when_the_authority_ends_first(tmp_path: Path, authority: Authority) -> None:
    registry = CollectorRegistry()
    TlsFiles(authority.issue(tmp_path / "worker", days=900)).expose(registry)
    assert registry.get_sample_value(GAUGE) == pytest.approx(time.time() + 90 * DAY_S, abs=60)


def test_broken_renewal_keeps_the_last_good_set_and_is_logged_once(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "worker"
    files = TlsFiles(authority.issue(folder))
    good = files.current()
    (folder / "tls.crt").write_text("half a certifi")
    with caplog.at_level(logging.ERROR, "kvarn.tls"):
        assert files.current() == good
        assert files.current() == good
    assert [record.detail for record in caplog.records] == [  # type: ignore[attr-defined]
        f"TLS file {folder}/tls.crt: holds no PEM certificate"
    ]
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (folder / name).unlink()
    assert files.current() == good
    authority.issue(folder, days=60)
    assert files.current().expires_at > good.expires_at


def test_expiry_under_a_running_process_is_logged_once(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    files = TlsFiles(authority.issue(tmp_path / "worker", days=30), clock)
    clock.now += 31 * DAY_S
    with caplog.at_level(logging.ERROR, "kvarn.tls"):
        files.current()
        files.current()
    assert [record.message for record in caplog.records] == ["TLS certificate has expired"]


def test_a_symbolic_link_turned_over_is_a_change(tmp_path: Path, authority: Authority) -> None:
    """As the kubelet renews a mounted secret: the folder behind a link is replaced as a whole."""
    authority.issue(tmp_path / "one", days=30)
    authority.issue(tmp_path / "two", days=60)
    link = tmp_path / "data"
    link.symlink_to("one")
    files = TlsFiles(settings_of(link))
    first = files.current()
    spare = tmp_path / "spare"
    spare.symlink_to("two")
    spare.replace(link)
    assert files.current().expires_at > first.expires_at
