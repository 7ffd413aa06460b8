"""Times as Kubernetes writes them, read. Called by the parsers."""

from datetime import UTC, datetime


def seconds(text: str) -> float:
    """RFC 3339 -> seconds since 1970. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def seconds_or(text: object, default: float) -> float:
    """The default for anything that is no time."""
    try:
        return seconds(text) if isinstance(text, str) else default
    except ValueError:
        return default
