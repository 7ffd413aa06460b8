"""Nodes without machines: pods turn Ready without running anything.

    fake_node.py N

Registers the nodes fake-1 ... fake-N with 8 GPUs each (nvidia.com/gpu), keeps their leases, makes every pod that the
scheduler puts on them Running and Ready, and ends the pods that are deleted. Seconds, by environment variable for all
pods or by annotation for one pod:

    FAKE_READY_DELAY_S    kvarn-bed/ready-delay-s     from bound to Ready; Running, not Ready, until then (default 0)
    FAKE_DELETE_DELAY_S   kvarn-bed/delete-delay-s    from the delete to the pod's end (default 0)

The annotation kvarn-bed/address gives a pod that address instead of one of its own, where a test answers for it.

Deletion is graceful as on a real node: the pod stays, Terminating and still Ready, for its delete delay, which stands
for the time its containers take to stop, but never longer than its grace period (terminationGracePeriodSeconds, or
what the delete asked for), at whose end a real node would kill them. A later delete with a shorter grace period
shortens it. Probes, hooks, restarts, logs and exec do not exist here, and no pod ever completes.
"""

import datetime
import heapq
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

LEASE_NAMESPACE = "kube-node-lease"
LEASE_RENEW_S = 10
CAPACITY = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "500", "nvidia.com/gpu": "8"}
READY_DELAY_S = float(os.environ.get("FAKE_READY_DELAY_S") or 0)
DELETE_DELAY_S = float(os.environ.get("FAKE_DELETE_DELAY_S") or 0)
GONE, CONFLICT = 404, 409
AWAY = (client.ApiException, HTTPError, OSError)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def timestamp() -> str:
    return now().strftime("%Y-%m-%dT%H:%M:%SZ")


class Agenda:
    """Runs actions on one thread when they fall due."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._count = 0
        threading.Thread(target=self._run, name="agenda", daemon=True).start()

    def add(self, delay_s: float, action: Callable[[], None]) -> None:
        with self._changed:
            self._count += 1  # breaks ties in order of arrival
            heapq.heappush(self._due, (time.monotonic() + delay_s, self._count, action))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or (wait_s := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(wait_s if self._due else None)
                action = heapq.heappop(self._due)[2]
            try:
                action()
            except client.ApiException as error:
                if error.status not in (GONE, CONFLICT):  # the pod was deleted, or replaced, meanwhile
                    print("agenda:", error.status, error.reason, flush=True)
            except AWAY as error:  # the API server may be stopping; the agenda must outlive it
                print("agenda:", error, flush=True)


class FakeNodes:
    def __init__(self, count: int) -> None:
        self.core, self.coordination = client.CoreV1Api(), client.CoordinationV1Api()
        self.names = [f"fake-{number}" for number in range(1, count + 1)]
        self.agenda = Agenda()
        self.seen: set[str] = set()  # uids of pods that have been given a start
        self.ends: dict[str, float] = {}  # uid -> when its pod's end is due
        self.next_address = 2

    # ---- nodes

    def register(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kvarn-bed/fake": "true"}
        try:
            self.core.create_node({"metadata": {"name": name, "labels": labels}})
        except client.ApiException as error:
            if error.status != CONFLICT:
                raise
        condition = {"type": "Ready", "status": "True", "reason": "Fake", "message": "no machine behind it"}
        condition |= {"lastHeartbeatTime": timestamp(), "lastTransitionTime": timestamp()}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
        status = {"capacity": CAPACITY, "allocatable": CAPACITY, "addresses": addresses, "conditions": [condition]}
        self.core.patch_node_status(name, {"status": status})

    def renew_leases(self) -> None:
        """A node whose lease is not renewed for 40 s counts as lost."""
        for name in self.names:
            renewed = {"renewTime": now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
            try:
                self.coordination.patch_namespaced_lease(name, LEASE_NAMESPACE, {"spec": renewed})
            except client.ApiException as error:
                if error.status != GONE:
                    raise
                spec = renewed | {"holderIdentity": name, "leaseDurationSeconds": 40}
                self.coordination.create_namespaced_lease(LEASE_NAMESPACE, {"metadata": {"name": name}, "spec": spec})

    def keep_leases(self) -> None:
        while True:
            try:
                self.renew_leases()
            except AWAY as error:  # the next round tries again
                print("lease:", error, flush=True)
            time.sleep(LEASE_RENEW_S)

    # ---- pods

    def observe(self, pod: Any) -> None:
        over = pod.status.phase in ("Succeeded", "Failed") and not pod.metadata.deletion_timestamp
        if pod.spec.node_name not in self.names or over:
            return
        if pod.metadata.deletion_timestamp:
            self.plan_end(pod)
        elif pod.metadata.uid not in self.seen:
            self.seen.add(pod.metadata.uid)
            if not pod.status.pod_ip:
                self.start(pod)

    def start(self, pod: Any) -> None:
        address = (pod.metadata.annotations or {}).get("kvarn-bed/address") or self.fresh_address()
        delay_s = setting(pod, "ready-delay-s", READY_DELAY_S)
        if delay_s > 0:
            self.agenda.add(0, lambda: self.write_status(pod, address, ready=False))
        self.agenda.add(delay_s, lambda: self.write_status(pod, address, ready=True))

    def fresh_address(self) -> str:
        self.next_address += 1
        return f"10.244.{self.next_address - 1 >> 8}.{self.next_address - 1 & 255}"

    def write_status(self, pod: Any, address: str, *, ready: bool) -> None:
        at, state = timestamp(), str(ready)
        conditions = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": state, "Ready": state}
        running = {"started": True, "restartCount": 0, "state": {"running": {"startedAt": at}}}
        containers = [
            {"name": c.name, "image": c.image, "imageID": c.image, "ready": ready, **running}
            for c in pod.spec.containers
        ]
        status = {
            "phase": "Running",
            "hostIP": "127.0.0.1",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": at,
            "conditions": [
                {"type": kind, "status": value, "lastTransitionTime": at} for kind, value in conditions.items()
            ],
            "containerStatuses": containers,
        }
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}  # the uid: not a namesake that came later
        self.core.patch_namespaced_pod_status(pod.metadata.name, pod.metadata.namespace, body)

    def plan_end(self, pod: Any) -> None:
        grace_s = pod.metadata.deletion_grace_period_seconds or 0
        # The timestamp is the moment of the delete plus the grace period, cut to whole seconds: less than one second
        # of age says nothing, more means that we were away.
        age_s = max(0.0, grace_s - (pod.metadata.deletion_timestamp - now()).total_seconds() - 1)
        stop_s = min(setting(pod, "delete-delay-s", DELETE_DELAY_S), grace_s)
        wait_s = max(0.0, stop_s - age_s)
        due = time.monotonic() + wait_s
        if due < self.ends.get(pod.metadata.uid, float("inf")):
            self.ends[pod.metadata.uid] = due
            self.agenda.add(wait_s, lambda: self.end(pod))

    def end(self, pod: Any) -> None:
        this_one = client.V1Preconditions(uid=pod.metadata.uid)
        options = client.V1DeleteOptions(grace_period_seconds=0, preconditions=this_one)
        self.core.delete_namespaced_pod(pod.metadata.name, pod.metadata.namespace, body=options)

    def forget(self, uid: str) -> None:
        self.seen.discard(uid)
        self.ends.pop(uid, None)

    # ---- life

    def run(self) -> None:
        self.skip_used_addresses()
        for name in self.names:
            self.register(name)
        threading.Thread(target=self.keep_leases, name="leases", daemon=True).start()
        print(f"{len(self.names)} fake nodes", flush=True)
        while True:
            try:
                for event in watch.Watch().stream(self.core.list_pod_for_all_namespaces, timeout_seconds=300):
                    if event["type"] == "DELETED":
                        self.forget(event["object"].metadata.uid)
                    elif event["type"] in ("ADDED", "MODIFIED"):
                        self.observe(event["object"])
            except AWAY as error:  # the API server may be away for a while; start over from a new list
                print("watch:", error, flush=True)
                time.sleep(1)

    def skip_used_addresses(self) -> None:
        """Pods of an earlier start keep their addresses."""
        for pod in self.core.list_pod_for_all_namespaces().items:
            if pod.status.pod_ip and pod.status.pod_ip.startswith("10.244."):
                _, _, high, low = map(int, pod.status.pod_ip.split("."))
                self.next_address = max(self.next_address, (high << 8 | low) + 1)


def setting(pod: Any, annotation: str, default: float) -> float:
    value = (pod.metadata.annotations or {}).get(f"kvarn-bed/{annotation}")
    try:
        return default if value is None else float(value)
    except ValueError:
        print(f"pod {pod.metadata.name}: annotation {annotation}={value!r} is not a number", flush=True)
        return default


if __name__ == "__main__":
    config.load_kube_config()
    FakeNodes(int(sys.argv[1])).run()
