"""Which worker source the settings name. Called by the composition root."""

import random
import time
from pathlib import Path

from kvarn_engine.process.settings import SettingsError

from kvarn_router.discovery.backoff import Backoff
from kvarn_router.discovery.endpoint import WorkerSource
from kvarn_router.discovery.static_list import StaticList
from kvarn_router.discovery.watched_file import WatchedFile
from kvarn_router.settings import DiscoverySettings, WorkerSettings

_FLAGS = "--workers, --workers-file or --workers-selector"


def choose_source(workers: WorkerSettings, discovery: DiscoverySettings) -> WorkerSource:
    """Raises SettingsError unless exactly one source is named."""
    given = {
        "--workers": bool(workers.workers),
        "--workers-file": bool(discovery.workers_file),
        "--workers-selector": bool(discovery.workers_selector),
    }
    named = [flag for flag, is_given in given.items() if is_given]
    if not named:
        raise SettingsError(f"no workers: give one of {_FLAGS}")
    if len(named) > 1:
        raise SettingsError(f"{' and '.join(named)} exclude each other: give one of {_FLAGS}")
    if workers.workers:
        return StaticList(workers.workers)
    if discovery.workers_file:
        return WatchedFile(Path(discovery.workers_file), discovery.workers_file_poll_s)
    return _kubernetes(discovery)


def _kubernetes(settings: DiscoverySettings) -> WorkerSource:
    # Imported here: the client costs 40 MB, which a router without Kubernetes need not hold.
    from kubernetes.config import ConfigException

    from kvarn_router.discovery.kubernetes_pods import KubernetesPods
    from kvarn_router.discovery.pod_api import PodApi, client_configuration, own_namespace
    from kvarn_router.discovery.pod_watcher import Timing

    try:
        configuration = client_configuration()
    except ConfigException as error:
        raise SettingsError(f"--workers-selector: no access to a cluster: {error}") from error
    namespace = settings.workers_namespace or own_namespace()
    backoff = Backoff(settings.kubernetes_backoff_min_s, settings.kubernetes_backoff_max_s, random.random)
    return KubernetesPods(
        lambda: PodApi(configuration, namespace, settings.workers_selector, settings.kubernetes_timeout_s),
        settings.workers_port_name,
        Timing(settings.workers_relist_s, backoff, time.monotonic),
    )
