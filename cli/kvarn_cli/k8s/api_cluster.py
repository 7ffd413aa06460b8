"""A real cluster behind its API server, asked with the rights of whoever runs the command. Plain data out.

Pods are read through the API server's proxy, so nothing but the API server has to be reachable.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import kubernetes
import urllib3

from kvarn_cli.k8s.cluster import MODEL_SERVICE_LABEL, ClusterError, Json, NotThere

GROUP, VERSION = "kvarn.dev", "v1alpha1"

_TIMEOUT_S = 15.0


class ApiCluster:
    """Every method raises ClusterError; NotThere where the kind or object is missing."""

    def __init__(self, context: str, namespace: str) -> None:
        try:
            kubernetes.config.load_kube_config(context=context or None)
            _, active = kubernetes.config.list_kube_config_contexts()
        except kubernetes.config.ConfigException as error:
            raise ClusterError(f"no cluster to talk to: {error}; set KUBECONFIG or --context") from error
        self.namespace = namespace or active["context"].get("namespace") or "default"
        self._core = kubernetes.client.CoreV1Api()
        self._custom = kubernetes.client.CustomObjectsApi()

    def services(self) -> list[Json]:
        return self._custom_objects("modelservices", "")

    def pools(self, service: str) -> list[Json]:
        return self._custom_objects("workerpools", f"{MODEL_SERVICE_LABEL}={service}")

    def pods(self, service: str) -> list[Json]:
        listed = self._ask(
            self._core.list_namespaced_pod, self.namespace, label_selector=f"{MODEL_SERVICE_LABEL}={service}"
        )
        return [_as_json(pod) for pod in listed.items]

    def pod(self, name: str) -> Json:
        return _as_json(self._ask(self._core.read_namespaced_pod, name, self.namespace))

    def page(self, pod: str, port: int, path: str) -> str:
        name = f"{pod}:{port}"
        get = self._core.connect_get_namespaced_pod_proxy_with_path
        return _text(self._ask(get, name, self.namespace, path.lstrip("/"), _preload_content=False).data)

    def annotate(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        self._ask(
            self._core.patch_namespaced_pod, pod, self.namespace, {"metadata": {"annotations": dict(annotations)}}
        )

    def log_lines(self, pod: str, follow: bool, tail: int) -> Iterator[str]:
        response = self._ask(
            self._core.read_namespaced_pod_log,
            pod,
            self.namespace,
            follow=follow,
            tail_lines=tail,
            _preload_content=False,
            _request_timeout=(_TIMEOUT_S, None) if follow else _TIMEOUT_S,
        )
        pending = b""
        try:
            for chunk in response.stream(amt=None):
                *lines, pending = (pending + chunk).split(b"\n")
                yield from map(_text, lines)
            if pending:
                yield _text(pending)
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"log of {pod} broke off: {error}") from error
        finally:
            response.release_conn()

    def _custom_objects(self, plural: str, selector: str) -> list[Json]:
        listed = self._ask(
            self._custom.list_namespaced_custom_object, GROUP, VERSION, self.namespace, plural, label_selector=selector
        )
        return list(listed["items"])

    def _ask(self, call: Any, *args: object, **options: object) -> Any:
        options.setdefault("_request_timeout", _TIMEOUT_S)
        try:
            return call(*args, **options)
        except kubernetes.client.ApiException as error:
            message = f"the API server says {error.status} {error.reason}"
            raise (NotThere if error.status == 404 else ClusterError)(message) from error
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"the API server does not answer: {error}") from error


def _as_json(thing: Any) -> Json:
    found = kubernetes.client.ApiClient().sanitize_for_serialization(thing)
    assert isinstance(found, dict)
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
