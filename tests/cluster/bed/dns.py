"""A small cluster DNS, since Debian packages none.

    dns.py LISTEN_IP PORT

Answers A queries over UDP, from watches on Services and Endpoints:

    NAME.NAMESPACE.svc.cluster.local            the ClusterIP; for a headless Service the ready pods
    HOSTNAME.NAME.NAMESPACE.svc.cluster.local   one pod of a headless Service (spec.hostname and spec.subdomain)
    10-244-0-7.NAMESPACE.pod.cluster.local      that address

A name that exists but has no record of the type asked for gets an empty answer; any other name does not exist
(NXDOMAIN), the outside world included. SRV, PTR, ExternalName and TCP are not served.
"""

import ipaddress
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

TYPE_A, CLASS_IN, NO_ERROR, NXDOMAIN = 1, 1, 0, 3
TTL_S = 5
AWAY = (client.ApiException, HTTPError, OSError)
Key = tuple[str, str]  # name, namespace

cluster_ips: dict[Key, str] = {}  # "None" for a headless Service
endpoints: dict[Key, list[tuple[str, str | None]]] = {}  # address, hostname


def follow(list_all: Callable[..., Any], store: dict[Key, Any], value: Callable[[Any], Any]) -> None:
    """Keep `store` equal to what the API holds: list, then watch from there, again and again."""
    while True:
        try:
            listed = list_all()
            fresh = {(item.metadata.name, item.metadata.namespace): value(item) for item in listed.items}
            for key in store.keys() - fresh.keys():
                del store[key]
            store.update(fresh)
            version = listed.metadata.resource_version
            for event in watch.Watch().stream(list_all, resource_version=version, timeout_seconds=300):
                item = event["object"]
                key = item.metadata.name, item.metadata.namespace
                if event["type"] == "DELETED":
                    store.pop(key, None)
                else:
                    store[key] = value(item)
        except AWAY as error:  # the API server may be away for a while; DNS goes on with what it knows
            print("watch:", error, flush=True)
            time.sleep(1)


def ready_addresses(item: Any) -> list[tuple[str, str | None]]:
    return [(a.ip, a.hostname) for subset in item.subsets or [] for a in subset.addresses or []]


def resolve(name: str) -> list[str] | None:
    """Addresses of `name`; None where there is no such name."""
    labels = name.lower().rstrip(".").split(".")
    kind, labels = labels[-3:], labels[:-3]
    if kind == ["svc", "cluster", "local"] and len(labels) == 2:
        ip = cluster_ips.get((labels[0], labels[1]))
        if not ip:
            return None
        return [a for a, _ in endpoints.get((labels[0], labels[1]), [])] if ip == "None" else [ip]
    if kind == ["svc", "cluster", "local"] and len(labels) == 3:
        return [a for a, hostname in endpoints.get((labels[1], labels[2]), []) if hostname == labels[0]] or None
    if kind == ["pod", "cluster", "local"] and len(labels) == 2:
        try:
            return [str(ipaddress.IPv4Address(labels[0].replace("-", ".")))]
        except ValueError:
            return None
    return None


def answer(query: bytes) -> bytes:
    position, labels = 12, []
    while length := query[position]:
        labels.append(query[position + 1 : position + 1 + length].decode())
        position += 1 + length
    (query_type,) = struct.unpack(">H", query[position + 1 : position + 3])
    question = query[12 : position + 5]
    found = resolve(".".join(labels))
    addresses = found if found and query_type == TYPE_A else []
    code = NXDOMAIN if found is None else NO_ERROR
    # Flags: a response, authoritative, recursion desired and available.
    header = query[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(addresses), 0, 0)
    records = [b"\xc0\x0c" + struct.pack(">HHIH", TYPE_A, CLASS_IN, TTL_S, 4) + socket.inet_aton(a) for a in addresses]
    return header + question + b"".join(records)


def main() -> None:
    config.load_kube_config()
    api = client.CoreV1Api()
    watches = [
        (api.list_service_for_all_namespaces, cluster_ips, lambda item: item.spec.cluster_ip),
        (api.list_endpoints_for_all_namespaces, endpoints, ready_addresses),
    ]
    for arguments in watches:
        threading.Thread(target=follow, args=arguments, daemon=True).start()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[1], int(sys.argv[2])))
    print("dns up", flush=True)
    while True:
        query, sender = server.recvfrom(1500)
        try:
            server.sendto(answer(query), sender)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            print("bad query:", error, flush=True)


if __name__ == "__main__":
    main()
