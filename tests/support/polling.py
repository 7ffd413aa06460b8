"""Wait for a condition inside an async test without blocking the loop that reads the answers."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def until(probe: Callable[[], T | None], what: str, deadline_s: float = 30.0) -> T:
    """Poll in a thread until the probe's result is true; the deadline only bounds a failing test."""
    end = time.monotonic() + deadline_s
    while True:
        if result := await asyncio.to_thread(probe):
            return result
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:.0f} s: {what}")
        await asyncio.sleep(0.005)
