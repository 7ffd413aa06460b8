"""`python -m kvarn_prefill`: composition root of a prefill worker."""

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

from kvarn_prefill.service import PrefillService
from kvarn_prefill.settings import PrefillSettings


def load(settings: PrefillSettings, registry: CollectorRegistry) -> WorkerParts:
    engine = EngineGroups(settings.model, settings.batch, settings.simulation)
    return build_parts(common_pb2.ROLE_PREFILL, settings.worker, engine, registry)


def program(settings: PrefillSettings) -> WorkerProgram:
    def role(parts: WorkerParts, _: TlsFiles | None) -> PrefillService:
        return PrefillService(parts, settings.export.handoff_heartbeat_s)

    return WorkerProgram(settings.worker, settings.tls, partial(load, settings), role)


def main() -> int:
    settings = load_settings_or_exit(PrefillSettings, sys.argv[1:], os.environ)
    configure_logging("prefill", settings.log.log_level, settings.log.log_json)
    return run_worker(program(settings))


if __name__ == "__main__":
    sys.exit(main())
