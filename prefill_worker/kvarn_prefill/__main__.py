"""`python -m kvarn_prefill`: composition root of a prefill worker."""

import os
import sys

from kvarn_engine.process.logs import configure_logging
from kvarn_engine.process.settings import load_settings_or_exit
from kvarn_engine.serving.worker_app import WorkerApp
from kvarn_engine.serving.worker_engine import EngineGroups, build_parts
from kvarn_engine.serving.worker_process import run_worker
from kvarn_proto.v1 import common_pb2

from kvarn_prefill.service import PrefillService
from kvarn_prefill.settings import PrefillSettings


def build(settings: PrefillSettings) -> WorkerApp:
    engine = EngineGroups(settings.model, settings.batch, settings.simulation)
    parts = build_parts(common_pb2.ROLE_PREFILL, settings.worker, engine)
    return WorkerApp(settings.worker, parts, PrefillService(parts, settings.export.handoff_heartbeat_s))


def main() -> int:
    settings = load_settings_or_exit(PrefillSettings, sys.argv[1:], os.environ)
    configure_logging("prefill", settings.log.log_level, settings.log.log_json)
    return run_worker(lambda: build(settings))


if __name__ == "__main__":
    sys.exit(main())
