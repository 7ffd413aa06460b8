"""What the API half can be told. Read by `routes.build_api`; loaded from flags, environment and file by the process."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiSettings:
    served_model_name: tuple[str, ...] = ()
    """Names that clients use for the model; the first where none is given. Empty: the model's reference."""

    api_keys: tuple[str, ...] = ()
    """Accepted bearer tokens. Empty: no authentication."""

    share_prefixes_between_keys: bool = False
    """Whether requests of different API keys may share cached prefixes."""

    max_body_bytes: int = 8 * 1024 * 1024
    """Larger request bodies are refused with 413 before they are buffered."""

    body_timeout_s: float = 60.0
    """A request body that takes longer to arrive is given up with 408."""

    max_inflight: int = 1024
    """Generation requests in progress at once; more are refused with 429."""

    max_prompts: int = 32
    """Prompts in one /v1/completions request."""

    default_max_tokens: int = 0
    """Output limit of a chat request that names none. 0: as many as fit behind the prompt."""

    sse_ping_s: float = 15.0
    """Silence after which a stream sends a comment line, so that proxies keep the connection."""

    send_timeout_s: float = 120.0
    """A client that takes no bytes for this long is given up."""
