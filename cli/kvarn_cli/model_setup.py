"""Makes the model ready before any worker starts, and shows how that goes. Called by `up`."""

import asyncio
import os
import sys
from collections.abc import Callable

from kvarn_engine.model_folder import EMBEDDED_MODEL, ModelNotFound, is_converted, resolve_model

from kvarn_cli.child import Child

LineHandler = Callable[[str], None]


async def prepare_model(reference: str, on_line: LineHandler) -> None:
    """Convert the embedded model once, or fetch what the reference names. Raises ModelNotFound."""
    if reference != EMBEDDED_MODEL:
        await asyncio.to_thread(resolve_model, reference)
        return
    if is_converted():
        return
    on_line("converting the embedded model; this happens once")
    child = await Child.start((sys.executable, "-m", "kvarn_engine.runtime.embedded"), os.environ, on_line)
    status = await child.wait()
    if status != 0 or not is_converted():
        raise ModelNotFound(f"conversion of the embedded model failed with exit status {status}")
