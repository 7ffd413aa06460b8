"""Certificates: good for both ends of a connection, for the name that peers check, and renewed without a restart."""

import pytest
from kvarn_decode.settings import DecodeSettings
from kvarn_engine.process.settings_fields import leaves
from kvarn_prefill.settings import PrefillSettings
from kvarn_router.settings import RouterSettings

from tests.chart.rendering import Body, Helm, containers, of_kind, rendered

PROCESSES = (RouterSettings, PrefillSettings, DecodeSettings)


@pytest.fixture
def bodies(helm: Helm) -> tuple[Body, ...]:
    return rendered(helm, "tls_cert_manager")


def test_the_certificate_serves_both_ends_and_has_the_name_that_peers_check(bodies: tuple[Body, ...]) -> None:
    spec = of_kind(bodies, "Certificate")["kvarn-tls"]["spec"]
    assert {"server auth", "client auth"} <= set(spec["usages"])
    checked = {leaf.default for root in PROCESSES for leaf in leaves(root) if leaf.flag == "--tls-server-name"}
    assert checked == set(spec["dnsNames"]) == {"kvarn-worker"}
    assert (spec["duration"], spec["renewBefore"]) == ("2160h", "720h")


def test_an_authority_of_its_own_signs_it(bodies: tuple[Body, ...]) -> None:
    """Whoever holds a certificate of the authority is trusted, so it is not shared with anything else."""
    certificates, issuers = of_kind(bodies, "Certificate"), of_kind(bodies, "Issuer")
    authority = certificates["kvarn-ca"]["spec"]
    assert certificates["kvarn-tls"]["spec"]["issuerRef"]["name"] == "kvarn-ca"
    assert issuers["kvarn-ca"]["spec"] == {"ca": {"secretName": authority["secretName"]}}
    assert (authority["isCA"], issuers[authority["issuerRef"]["name"]]["spec"]) == (True, {"selfSigned": {}})


def test_an_issuer_of_the_company_signs_it(helm: Helm) -> None:
    issuer = "tls.certManager.issuerRef.name=corp,tls.certManager.issuerRef.kind=ClusterIssuer"
    bodies = helm.template("--set", f"tls.enabled=true,tls.certManager.enabled=true,{issuer}")
    assert of_kind(bodies, "Issuer") == {}
    (certificate,) = of_kind(bodies, "Certificate").values()
    assert certificate["spec"]["issuerRef"] == {"name": "corp", "kind": "ClusterIssuer"}


def test_a_renewed_certificate_reaches_the_process(bodies: tuple[Body, ...]) -> None:
    """The kubelet swaps a mounted Secret as a whole, save under a subPath, and the process reads its files again."""
    (container,) = containers(of_kind(bodies, "Deployment")["smollm2-router"]["spec"]["template"])
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "tls"]
    assert mount == {"name": "tls", "mountPath": "/etc/kvarn/tls", "readOnly": True}
    secret = of_kind(bodies, "Certificate")["kvarn-tls"]["spec"]["secretName"]
    (operator,) = containers(of_kind(bodies, "Deployment")["kvarn-operator"]["spec"]["template"])
    assert f"--tls-secret={secret}" in operator["args"]
