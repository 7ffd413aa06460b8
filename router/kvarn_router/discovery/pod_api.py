"""List and watch pods of one namespace through the official client. Blocks; used by the pod watcher's thread alone.

The client's own retries are off: the watcher decides when to try again. Needs no more than get, list and watch on pods.
"""

import json
import os
import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_GONE = 410


class PodApiError(Exception):
    """The API server is not reached, refuses, or breaks off; the message says which."""


class Expired(PodApiError):
    """410: the server no longer knows what came after this resource version."""


@dataclass(frozen=True, slots=True)
class PodEvent:
    kind: str
    pod: Any
    """The pod as the server sent it, in JSON."""


@dataclass(frozen=True, slots=True)
class PodList:
    pods: list[Any]
    resource_version: str


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


class PodApi:
    def __init__(self, configuration: client.Configuration, namespace: str, selector: str, timeout_s: float) -> None:
        configuration.retries = False
        self._client = client.ApiClient(configuration)
        self._core = client.CoreV1Api(self._client)
        self._namespace = namespace
        self._selector = selector
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._watch: Any = None
        self._interrupted = False

    def list(self) -> PodList:
        """Raises PodApiError."""
        with closing(self._open(self._timeout_s)) as response:
            try:
                content = json.loads(response.data)
                return PodList(content.get("items") or [], content["metadata"]["resourceVersion"])
            except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError) as error:
                raise PodApiError(f"list: {type(error).__name__}: {error}") from error

    def watch(self, resource_version: str, duration_s: float) -> Generator[PodEvent, None, None]:
        """Events after a version, until `duration_s` pass in silence or the server ends it. Raises PodApiError."""
        response = self._open(
            duration_s,
            watch=True,
            resource_version=resource_version,
            allow_watch_bookmarks=True,
            timeout_seconds=ceil(duration_s),
        )
        with closing(response):
            with self._lock:
                self._watch = response
                if self._interrupted:
                    return
            try:
                yield from map(_event, _lines(response))
            except urllib3.exceptions.ReadTimeoutError:
                return
            except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError) as error:
                raise PodApiError(f"watch: {type(error).__name__}: {error}") from error
            finally:
                with self._lock:
                    self._watch = None

    def interrupt(self) -> None:
        """From another thread: end the watch that runs, and any later one."""
        with self._lock:
            self._interrupted = True
            if self._watch is not None:
                try:
                    self._watch.shutdown()
                except (OSError, ValueError, RuntimeError):
                    # It ended by itself in this moment.
                    return

    def close(self) -> None:
        self._client.close()

    def _open(self, read_timeout_s: float, **query: Any) -> Any:
        """The response with its body unread. Raises PodApiError."""
        try:
            response = self._core.list_namespaced_pod(
                self._namespace,
                label_selector=self._selector,
                _preload_content=False,
                _request_timeout=(self._timeout_s, read_timeout_s),
                **query,
            )
        except client.ApiException as error:
            raise _refusal(error.status or 0, str(error.reason)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise PodApiError(f"{type(error).__name__}: {error}") from error
        if response.status != 200:
            with closing(response):
                raise _refusal(response.status, str(response.reason))
        return response


def _refusal(code: int, reason: str) -> PodApiError:
    kind = Expired if code == _GONE else PodApiError
    return kind(f"the API server answers {code}: {reason}")


def _lines(response: Any) -> Iterator[bytes]:
    rest = b""
    for piece in response.stream(65536):
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line for line in whole if line.strip())


def _event(line: bytes) -> PodEvent:
    content = json.loads(line)
    if content["type"] == "ERROR":
        status = content["object"]
        raise _refusal(status.get("code", 0), status.get("message", ""))
    return PodEvent(content["type"], content["object"])
