"""The router's error tree. `api/errors.py` maps it to HTTP once; nothing else knows status codes.

    RouterError
    ├── InvalidInput        the client's fault; names the parameter
    │   └── PromptTooLong   with both numbers
    ├── Unauthorized        missing or wrong API key
    ├── ModelNotFound
    ├── BodyTooLarge
    ├── TooManyRequests     this router's own queue is full
    ├── NoWorker            no live worker can take the request now
    ├── WorkerLost          a worker broke and no other could go on
    └── InternalError       ours
"""


class RouterError(Exception):
    """Messages never hold prompt text."""


class InvalidInput(RouterError):
    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class PromptTooLong(InvalidInput):
    def __init__(self, limit: int, num_prompt_tokens: int, wanted: int = 0, param: str | None = None) -> None:
        """`wanted` output tokens; 0: the client left that open."""
        asked = f" and {wanted} tokens of output were asked for" if wanted else ""
        super().__init__(
            f"This model's maximum context length is {limit} tokens, but the prompt has {num_prompt_tokens}{asked}.",
            param,
        )


class Unauthorized(RouterError):
    pass


class ModelNotFound(RouterError):
    def __init__(self, model: str) -> None:
        super().__init__(f"The model `{model}` does not exist")
        self.model = model


class BodyTooLarge(RouterError):
    pass


class TooManyRequests(RouterError):
    retry_after_s: float = 1.0


class NoWorker(RouterError):
    retry_after_s: float = 1.0


class WorkerLost(RouterError):
    pass


class InternalError(RouterError):
    pass
