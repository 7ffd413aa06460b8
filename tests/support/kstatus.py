"""What tools that wait by kstatus (cli-utils, `pkg/kstatus`) make of a custom resource, by its published rules."""

from collections.abc import Mapping
from typing import Any


def kstatus(resource: Mapping[str, Any]) -> str:
    """Terminating, InProgress, Failed or Current."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    if "deletionTimestamp" in metadata:
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    by_type = {item["type"]: item["status"] for item in status.get("conditions") or ()}
    if by_type.get("Reconciling") == "True":
        return "InProgress"
    if by_type.get("Stalled") == "True":
        return "Failed"
    return "Current" if by_type.get("Ready", "True") == "True" else "InProgress"
