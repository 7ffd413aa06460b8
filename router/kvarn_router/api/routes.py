"""Composes the API: `build_api` is what the router process serves with uvicorn."""

import secrets
import time
import uuid
from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from kvarn_router.api.chat import ChatShape
from kvarn_router.api.completions import CompletionShape
from kvarn_router.api.edge import Edge
from kvarn_router.api.endpoint import GenerationEndpoint
from kvarn_router.api.metrics import ApiMetrics, MeteredPipeline
from kvarn_router.api.services import InflightLimit, Services, Sources
from kvarn_router.api.settings import ApiSettings
from kvarn_router.api.status_endpoints import StatusEndpoints
from kvarn_router.api.text_endpoints import DetokenizeEndpoint, TokenizeEndpoint
from kvarn_router.context import Pipeline
from kvarn_router.tokenization import Tokenizer


def build_api(
    pipeline: Pipeline,
    tokenizer: Tokenizer,
    settings: ApiSettings,
    registry: CollectorRegistry,
    sources: Sources | None = None,
    extra_routes: Sequence[Route] = (),
) -> ASGIApp:
    """`extra_routes` are served behind the same edge: request ids, API keys, error bodies."""
    sources = sources or system_sources()
    metrics = ApiMetrics(registry)
    limit = InflightLimit(settings.max_inflight)
    services = Services(MeteredPipeline(pipeline, metrics), tokenizer, settings, sources, limit)
    router = Router([*_routes(services, registry), *extra_routes], redirect_slashes=False, default=_not_found)
    return Edge(router, settings.api_keys, metrics, sources.make_request_id)


def system_sources() -> Sources:
    return Sources(
        now_s=time.time, draw_seed=lambda: secrets.randbits(64), make_request_id=lambda: f"req-{uuid.uuid4().hex}"
    )


def _routes(services: Services, registry: CollectorRegistry) -> list[Route]:
    status = StatusEndpoints(services, registry)
    chat = GenerationEndpoint(services, ChatShape(services))
    completions = GenerationEndpoint(services, CompletionShape(services))
    post, get = ["POST"], ["GET"]
    return [
        Route("/v1/chat/completions", chat, methods=post),
        Route("/v1/completions", completions, methods=post),
        Route("/v1/models", status.models, methods=get),
        Route("/v1/models/{name:path}", status.model, methods=get),
        Route("/tokenize", TokenizeEndpoint(services), methods=post),
        Route("/detokenize", DetokenizeEndpoint(services), methods=post),
        Route("/health", status.health, methods=get),
        Route("/ready", status.ready, methods=get),
        Route("/metrics", status.metrics, methods=get),
    ]


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404)
