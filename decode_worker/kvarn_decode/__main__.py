"""`python -m kvarn_decode`: composition root of a decode worker."""

import os
import sys

from kvarn_engine.process.logs import configure_logging
from kvarn_engine.process.settings import load_settings_or_exit
from kvarn_engine.serving.worker_app import WorkerApp
from kvarn_engine.serving.worker_engine import EngineGroups, build_parts
from kvarn_engine.serving.worker_process import run_worker
from kvarn_proto.v1 import common_pb2

from kvarn_decode.service import DecodeService
from kvarn_decode.settings import DecodeSettings


def build(settings: DecodeSettings) -> WorkerApp:
    engine = EngineGroups(settings.model, settings.batch, settings.simulation)
    parts = build_parts(common_pb2.ROLE_DECODE, settings.worker, engine)
    return WorkerApp(settings.worker, parts, DecodeService(parts, settings.handoff))


def main() -> int:
    settings = load_settings_or_exit(DecodeSettings, sys.argv[1:], os.environ)
    configure_logging("decode", settings.log.log_level, settings.log.log_json)
    return run_worker(lambda: build(settings))


if __name__ == "__main__":
    sys.exit(main())
