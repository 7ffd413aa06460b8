"""Times as Kubernetes writes them. Used where status and annotations are made."""

from datetime import UTC, datetime


def rfc3339(at: float) -> str:
    """`at` in seconds since 1970; whole seconds, UTC."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
