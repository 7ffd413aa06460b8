"""`python -m kvarn_operator`: the process edge. Exit status 0 after SIGTERM, 1 for a failure, 2 for wrong settings."""

import asyncio
import logging
import os
import sys

from kubernetes import config
from kvarn_engine.process.logs import configure_logging
from kvarn_engine.process.settings import load_settings_or_exit

from kvarn_operator.app import serve
from kvarn_operator.settings import OperatorSettings

LIBRARY_LEVELS = {
    "kopf": logging.ERROR,
    "kopf._cogs.clients": logging.CRITICAL,  # errors of calls that it tries again by itself
    "httpx": logging.WARNING,  # tells of every scrape
    "httpcore": logging.WARNING,
    "urllib3": logging.ERROR,
    "asyncio": logging.WARNING,
}


def main() -> int:
    settings = load_settings_or_exit(OperatorSettings, sys.argv[1:], os.environ)
    configure_logging("operator", settings.logs.log_level, settings.logs.log_json)
    for name, level in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(level)
    try:
        return asyncio.run(serve(settings))
    except (config.ConfigException, OSError) as error:
        logging.getLogger("kvarn.operator").error("cannot start", extra={"reason": str(error)})
        return 1


if __name__ == "__main__":
    sys.exit(main())
