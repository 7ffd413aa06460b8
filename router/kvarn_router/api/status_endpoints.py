"""/v1/models, /health, /ready and /metrics. Used by `routes`."""

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kvarn_router.api.services import Services
from kvarn_router.errors import ModelNotFound, NoWorker


class StatusEndpoints:
    def __init__(self, services: Services, registry: CollectorRegistry) -> None:
        self._services = services
        self._registry = registry
        self._started_at = int(services.sources.now_s())

    async def models(self, request: Request) -> Response:
        data = [self._model(name) for name in self._services.model_names()]
        return JSONResponse({"object": "list", "data": data})

    async def model(self, request: Request) -> Response:
        name = str(request.path_params["name"])
        if name not in self._services.model_names():
            raise ModelNotFound(name[:200])
        return JSONResponse(self._model(name))

    async def health(self, request: Request) -> Response:
        """The process answers; whether workers do is `/ready`."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        if not self._services.pipeline.is_ready():
            raise NoWorker("Not enough workers to take a request yet.")
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})

    def _model(self, name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": self._started_at,
            "owned_by": "kvarn",
            "max_model_len": self._services.pipeline.card().max_model_len,
        }
