"""The engine's error tree.

    EngineError
    ├── InvalidRequest      the request can never succeed here (names the field)
    ├── LayoutMismatch      two workers do not share a KV layout
    ├── Overloaded          not now; try again after `retry_after_s`
    ├── Draining            this worker takes no new work, or ends before this work is done
    ├── HandoffError        a peer broke the hand-off (stream lost, bad frame, bad checksum)
    ├── UnsupportedModel    refused at load, with the reason
    └── EngineFailure       the step loop failed; every request in flight gets this
"""


class EngineError(Exception):
    """Base of everything an engine raises towards its caller. Messages never hold prompt text."""

    retryable = False


class InvalidRequest(EngineError):
    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class LayoutMismatch(EngineError):
    def __init__(self, ours: str, theirs: str) -> None:
        super().__init__(f"KV layout fingerprint {theirs} does not match this worker's {ours}")
        self.ours = ours
        self.theirs = theirs


class Overloaded(EngineError):
    retryable = True

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Draining(EngineError):
    retryable = True


class HandoffError(EngineError):
    retryable = True


class UnsupportedModel(EngineError):
    pass


class EngineFailure(EngineError):
    retryable = True
