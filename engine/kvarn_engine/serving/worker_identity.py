"""Who a worker is, for as long as its process lives."""

import importlib.metadata
import secrets
from dataclasses import dataclass

from kvarn_proto.v1 import common_pb2

from kvarn_engine.core.ids import Incarnation, WorkerId


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    worker_id: WorkerId
    incarnation: Incarnation
    role: common_pb2.Role
    model: str
    render_fingerprint: str
    version: str


def new_incarnation() -> Incarnation:
    return Incarnation(secrets.token_hex(8))


def installed_version() -> str:
    return importlib.metadata.version("kvarn")
