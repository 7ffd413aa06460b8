"""One HTTP call to the API server through the official client's connection and credentials. Blocks; run in threads.

The client's typed models and its own retries stay unused: objects are JSON, and the queue decides when to try again.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

from kvarn_operator.cluster.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Expired,
    NotFound,
    Refused,
    Unavailable,
)

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Json = Any

_BROKEN_WEBHOOK = "failed calling webhook"
"""The API server's words."""

JSON_TYPE = "application/json"
MERGE_PATCH_TYPE = "application/merge-patch+json"
APPLY_PATCH_TYPE = "application/apply-patch+yaml"
"""JSON is YAML, so an apply is sent as JSON."""


@dataclass(frozen=True, slots=True)
class Call:
    verb: str
    """As RBAC has it: get, list, create, update, patch, apply, delete."""

    method: str
    path: str
    resource: str
    """The kind's plural name, for metrics."""

    body: Json = None
    content_type: str = JSON_TYPE
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    connect_s: float = 5.0
    read_s: float = 10.0
    list_s: float = 60.0
    """For lists: a busy API server may take long over many objects, and nothing waits for the answer but the list."""

    def of(self, verb: str) -> tuple[float, float]:
        return self.connect_s, self.list_s if verb == "list" else self.read_s


Meter = Callable[[Call, int], None]
"""Gets every finished call with its status; 0 when there was no answer."""


def client_configuration() -> client.Configuration:
    """From KUBECONFIG, else the pod's service account, else the user's kubeconfig. Raises config.ConfigException."""
    configuration = client.Configuration()
    chosen = os.environ.get("KUBECONFIG")
    if chosen is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config(client_configuration=configuration)
    else:
        config.load_kube_config(config_file=chosen, client_configuration=configuration)
    return configuration


def own_namespace() -> str:
    """That of the pod this process runs in; `default` outside of one."""
    return _NAMESPACE_FILE.read_text("utf-8").strip() if _NAMESPACE_FILE.exists() else "default"


class Transport:
    def __init__(self, configuration: client.Configuration, timeouts: CallTimeouts, meter: Meter) -> None:
        configuration.retries = False
        self._configuration = configuration
        self._client = client.ApiClient(configuration)
        self._timeouts = timeouts
        self._meter = meter
        self._token_lock = threading.Lock()

    def send(self, call: Call) -> Json:
        """The JSON of the answer. Raises ClusterError."""
        status, headers, data = self._exchange(call)
        self._meter(call, status)
        if 200 <= status < 300:
            return _parsed(data, call)
        raise failure(call, status, headers, data)

    def close(self) -> None:
        self._client.close()

    def _exchange(self, call: Call) -> tuple[int, Mapping[str, str], bytes]:
        url = self._configuration.host + call.path + (f"?{urlencode(call.query)}" if call.query else "")
        try:
            response = self._client.rest_client.request(
                call.method,
                url,
                headers=self._headers(call),
                body=call.body,
                _request_timeout=self._timeouts.of(call.verb),
            )
            return response.status, response.headers, response.read()
        except client.ApiException as error:
            self._meter(call, 0)
            raise Unavailable(f"{call.verb} {call.path}: {error.reason}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._meter(call, 0)
            raise Unavailable(f"{call.verb} {call.path}: {type(error).__name__}: {error}") from error

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "kvarn-operator"}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        with self._token_lock:  # a token that expires is read again, by one thread
            token = self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            headers["Authorization"] = token
        elif self._configuration.username and self._configuration.password:
            headers["Authorization"] = self._configuration.get_basic_auth_token()
        return headers


def failure(call: Call, status: int, headers: Mapping[str, str], data: bytes) -> ClusterError:
    """The error that a status of 300 or more means.

    Credentials that do not count at the moment are no verdict on what was asked. A webhook that is away is one, though
    it comes as a 500: only what it watches over is refused.
    """
    content = _status_object(data)
    message = f"{call.verb} {call.path}: {status} {content.get('message') or data[:200].decode(errors='replace')}"
    if status == 409:
        return (AlreadyExists if content.get("reason") == "AlreadyExists" else Conflict)(message)
    if _BROKEN_WEBHOOK in message:
        return Refused(message)
    if status in (401, 408, 429) or status >= 500:
        return Unavailable(message, _retry_after(headers, content))
    return {404: NotFound, 410: Expired}.get(status, Refused)(message)


def _status_object(data: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _retry_after(headers: Mapping[str, str], content: Mapping[str, Any]) -> float | None:
    """Seconds, from the header or the Status; a date counts as unsaid."""
    for text in (headers.get("Retry-After"), (content.get("details") or {}).get("retryAfterSeconds")):
        try:
            return max(0.0, float(str(text)))
        except ValueError:
            continue
    return None


def _parsed(data: bytes, call: Call) -> Json:
    try:
        return json.loads(data)
    except ValueError as error:
        raise Unavailable(f"{call.verb} {call.path}: the answer is not JSON") from error
