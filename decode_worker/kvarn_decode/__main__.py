"""`python -m kvarn_decode`: composition root of a decode worker."""

import os
import sys
from functools import partial

from kvarn_engine.process.logs import configure_logging
from kvarn_engine.process.settings import load_settings_or_exit
from kvarn_engine.serving.worker_app import WorkerParts
from kvarn_engine.serving.worker_engine import EngineGroups, build_parts
from kvarn_engine.serving.worker_process import WorkerProgram, run_worker
from kvarn_engine.wire.tls import TlsFiles
from kvarn_proto.v1 import common_pb2
from prometheus_client import CollectorRegistry

from kvarn_decode.service import DecodeService
from kvarn_decode.settings import DecodeSettings


def load(settings: DecodeSettings, registry: CollectorRegistry) -> WorkerParts:
    engine = EngineGroups(settings.model, settings.batch, settings.simulation)
    return build_parts(common_pb2.ROLE_DECODE, settings.worker, engine, registry)


def program(settings: DecodeSettings) -> WorkerProgram:
    def role(parts: WorkerParts, tls: TlsFiles | None) -> DecodeService:
        return DecodeService(parts, settings.handoff, tls)

    return WorkerProgram(settings.worker, settings.tls, partial(load, settings), role)


def main() -> int:
    settings = load_settings_or_exit(DecodeSettings, sys.argv[1:], os.environ)
    configure_logging("decode", settings.log.log_level, settings.log.log_json)
    return run_worker(program(settings))


if __name__ == "__main__":
    sys.exit(main())
