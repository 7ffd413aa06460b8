"""What can go wrong between the operator and the API server. Raised by `transport`, judged by `executor`."""


class ClusterError(Exception):
    """`retry_after_s` is what the server asked for, or None."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotFound(ClusterError):
    """404: the object, or its whole kind."""


class Conflict(ClusterError):
    """409: a precondition does not hold, or somebody wrote in between."""


class AlreadyExists(Conflict):
    """409 of a creation: the name is taken."""


class Expired(ClusterError):
    """410: the server no longer knows this resource version or continuation."""


class Refused(ClusterError):
    """The server understood and will not: invalid, forbidden, over quota, or an admission webhook that does not answer.
    Asking again at once changes nothing."""


class Unavailable(ClusterError):
    """401, 429, 5xx, no connection, no answer in time, or an answer that is none."""


class NotLeading(ClusterError):
    """This process may no longer act: another one may hold the lease."""
