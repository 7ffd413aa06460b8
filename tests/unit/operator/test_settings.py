"""The operator's settings: flags as the chart gives them, and combinations that are refused."""

import pytest
from kvarn_engine.process.settings import SettingsError, load_settings
from kvarn_operator.app import defaults_of, scope_of
from kvarn_operator.settings import OperatorSettings


def load(*flags: str) -> OperatorSettings:
    return load_settings(OperatorSettings, flags, {})


def test_the_defaults_are_for_one_namespace_and_an_elected_leader() -> None:
    settings = load()
    assert settings.election.leader_elect
    assert settings.election.lease_name == "kvarn-operator"
    assert (settings.endpoints.health_port, settings.endpoints.metrics_port) == (8081, 8082)
    assert (settings.loops.resync_s, settings.loops.sample_s) == (60.0, 5.0)
    assert scope_of(settings).namespaces == ("default",)


def test_what_the_chart_gives_arrives() -> None:
    settings = load(
        "--namespaces", "a,b", "--worker-image", "example/worker:1", "--image-pull-policy", "Never",
        "--image-pull-secrets", "one,two", "--tls-secret", "tls", "--worker-service-account", "workers",
        "--priority-class-name", "high", "--no-leader-elect", "--lease-name", "l", "--lease-namespace", "ops",
        "--health-port", "1", "--metrics-port", "2", "--resync-s", "30", "--sample-s", "1", "--log-level", "debug",
        "--log-json",
    )  # fmt: skip
    assert scope_of(settings).each() == ("a", "b")
    assert not settings.election.leader_elect
    defaults = defaults_of(settings, "policy/v1beta1")
    assert (defaults.worker_image, defaults.image_pull_policy) == ("example/worker:1", "Never")
    assert (defaults.image_pull_secrets, defaults.tls_secret) == (("one", "two"), "tls")
    assert (defaults.worker_service_account, defaults.priority_class_name) == ("workers", "high")
    assert defaults.budget_api == "policy/v1beta1"


def test_the_whole_cluster_is_one_scope() -> None:
    scope = scope_of(load("--cluster-wide"))
    assert (scope.namespaces, scope.each()) == ((), ("",))


@pytest.mark.parametrize(
    "flags",
    [
        ("--cluster-wide", "--namespaces", "a"),
        ("--image-pull-policy", "Sometimes"),
        ("--worker-image", ""),
        ("--lease-renew-deadline-s", "10"),
        ("--lease-retry-s", "7"),
        ("--resync-s", "0"),
        ("--stall-s", "60"),
        ("--kubernetes-timeout-s", "0"),
        ("--no-such-flag",),
    ],
    ids=" ".join,
)
def test_what_contradicts_itself_is_refused(flags: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError):
        load(*flags)
