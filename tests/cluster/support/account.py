"""A cluster as one service account of the chart sees it."""

import json
from dataclasses import replace
from pathlib import Path

import yaml

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.helm import CHART
from tests.cluster.support.kubectl import Client, Resource

RELEASE = "kvarn"
TENANT = ("--skip-crds", "--set", "crds.upgrade=false")
"""As docs/kubernetes.md tells someone who may not write ClusterRoles."""


def rendered_operator(cluster: Cluster, namespace: str) -> list[Resource]:
    """All that the chart says about the operator, for a tenant of one namespace."""
    templates = [f"templates/operator/{name}.yaml" for name in ("rbac", "lease", "deployment")]
    shown = [part for template in templates for part in ("--show-only", template)]
    text = cluster.helm(namespace)("template", RELEASE, str(CHART), *TENANT, *shown)
    return [resource for resource in yaml.safe_load_all(text) if resource]


def as_account(cluster: Cluster, namespace: str, account: str, folder: Path) -> Cluster:
    """With a token instead of the administrator's certificate."""
    kubectl = cluster.kubectl(namespace)
    config = json.loads(kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    token = kubectl("create", "token", account, "--duration=1h").strip()
    user, context = config["users"][0], config["contexts"][0]
    user["user"] = {"token": token}
    context["context"]["namespace"] = namespace
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    return replace(cluster, client=Client(kubeconfig, cluster.client.programs))
