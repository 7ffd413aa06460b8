"""`python -m kvarn_router`: the process edge of the router."""

import asyncio
import logging
import os
import signal
import sys
from types import FrameType

import uvloop
from kvarn_engine.model_folder import ModelNotFound
from kvarn_engine.process.logs import configure_logging
from kvarn_engine.process.settings import SettingsError, load_settings_or_exit
from kvarn_engine.wire.tls import TlsError

from kvarn_router.app import serve
from kvarn_router.settings import RouterSettings


def main() -> int:
    settings = load_settings_or_exit(RouterSettings, sys.argv[1:], os.environ)
    configure_logging("router", settings.logs.log_level, settings.logs.log_json)
    # Until `serve` takes the signals over: the first process of a container ignores those that nobody handles.
    signal.signal(signal.SIGTERM, _leave_while_loading)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(settings))
    except SettingsError as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    except (ModelNotFound, TlsError, OSError) as error:
        logging.getLogger("kvarn.router").error("cannot start", extra={"reason": str(error)})
        return 1


def _leave_while_loading(number: int, frame: FrameType | None) -> None:
    """An orderly end would wait for a download; nobody is served yet."""
    logging.getLogger("kvarn.router").info("stopped while loading")
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
