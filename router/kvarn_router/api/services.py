"""What every endpoint is given: built once by `routes.build_api`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kvarn_router.api.exchange import BodyLimits
from kvarn_router.api.fields import Fields
from kvarn_router.api.sampling_fields import Vocabulary
from kvarn_router.api.settings import ApiSettings
from kvarn_router.context import Pipeline
from kvarn_router.errors import InvalidInput, ModelNotFound, TooManyRequests
from kvarn_router.tokenization import Tokenizer


@dataclass(frozen=True, slots=True)
class Sources:
    """Where non-determinism comes from, so that tests can hold it still."""

    now_s: Callable[[], float]
    draw_seed: Callable[[], int]
    make_request_id: Callable[[], str]


class InflightLimit:
    """Generation requests in progress, counted before their bodies are read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        if self._count >= self._limit:
            raise TooManyRequests(f"The router already has {self._limit} requests in progress.")
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


@dataclass(frozen=True, slots=True)
class Services:
    pipeline: Pipeline
    tokenizer: Tokenizer
    settings: ApiSettings
    sources: Sources
    inflight: InflightLimit

    @property
    def body_limits(self) -> BodyLimits:
        return BodyLimits(self.settings.max_body_bytes, self.settings.body_timeout_s)

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.tokenizer.vocab_size, self.tokenizer.eos_ids)

    def model_names(self) -> tuple[str, ...]:
        return self.settings.served_model_name or self.pipeline.card().served_names

    def read_model(self, fields: Fields, required: bool = True) -> str:
        model = fields.text("model")
        if model is None:
            if required:
                raise InvalidInput("you must provide a model parameter", "model", "missing_required_parameter")
            return next(iter(self.model_names()), "")
        if model not in self.model_names():
            raise ModelNotFound(model[:200])
        return model

    def cache_salt(self, tenant: str, salt: str) -> str:
        """Requests of different API keys share no cached prefix unless the settings say so."""
        if not tenant or self.settings.share_prefixes_between_keys:
            return salt
        return f"{tenant}:{salt}"
