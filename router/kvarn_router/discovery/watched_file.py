"""Worker source of `--workers-file`: read again and again. A bad file keeps the last good set."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

from kvarn_router.discovery.endpoint import Endpoint
from kvarn_router.discovery.file_format import BadWorkersFile, parse_workers

logger = logging.getLogger("kvarn.router.discovery")


class WatchedFile:
    def __init__(self, path: Path, poll_interval_s: float) -> None:
        self._path = path
        self._poll_interval_s = poll_interval_s

    async def snapshots(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        # Compared by content: a mounted ConfigMap changes behind links, with times that need not grow.
        last_text: str | None = None
        last_problem = ""
        last: tuple[Endpoint, ...] | None = None
        while True:
            try:
                text = await asyncio.to_thread(self._path.read_text, "utf-8")
                if text != last_text:
                    last_text = text
                    endpoints = parse_workers(text, toml=self._path.suffix == ".toml")
                    if endpoints != last:
                        last = endpoints
                        yield endpoints
                    last_problem = ""
            except (BadWorkersFile, OSError, UnicodeDecodeError) as error:
                problem = str(error)
                if isinstance(error, OSError):
                    # The same content again, once the file is back, is to be looked at anew.
                    last_text = None
                if problem != last_problem:
                    last_problem = problem
                    extra = {"path": str(self._path), "reason": problem, "workers": len(last or ())}
                    logger.error("workers file not usable, the last good set stays", extra=extra)
            await asyncio.sleep(self._poll_interval_s)
