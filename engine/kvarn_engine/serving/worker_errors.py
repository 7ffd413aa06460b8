"""Where a servicer's EngineError becomes the status of its call. Every service method runs inside it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from kvarn_engine.core.errors import EngineError
from kvarn_engine.wire.status import REQUEST_ID_KEY, status_of

logger = logging.getLogger("kvarn.worker")

AnyContext = grpc.aio.ServicerContext[Any, Any]


@asynccontextmanager
async def errors_as_status(context: AnyContext, request_id: str = "") -> AsyncIterator[None]:
    """Abort the call with the error's own status and detail. Cancellation passes through untouched."""
    try:
        yield
    except EngineError as error:
        logger.info(
            "request refused or failed",
            extra={"request_id": request_id or request_id_of(context), "reason": type(error).__name__},
        )
        status = status_of(error)
        await context.abort(status.code, status.message, status.trailing_metadata)


def request_id_of(context: AnyContext) -> str:
    """The caller's `x-request-id`, empty when it sent none."""
    metadata: Any = context.invocation_metadata() or ()
    return next((str(value) for key, value in metadata if key == REQUEST_ID_KEY), "")
