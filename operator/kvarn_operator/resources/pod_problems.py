"""What keeps a pod from serving that only people can mend, from its status. Called by `pod_parsing`."""

from collections.abc import Iterator

from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.worker_pool import PodProblem

IMAGE_REASONS = frozenset({
    "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
    "RegistryUnavailable", "SignatureValidationFailed",
})  # fmt: skip
CONFIGURATION_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
CRASHING_REASONS = frozenset({"CrashLoopBackOff"})

Found = tuple[PodProblem, str]


def find_problem(status: Fields, ended: bool, ready: bool) -> Found:
    """The problem and a message for people. A pod that ended has none, but may tell why it ended."""
    if ended:
        return PodProblem.NONE, _joined(status.text("reason"), _message(status))
    if ready:
        return PodProblem.NONE, ""
    for condition in status.sections("conditions"):
        unscheduled = condition.values.get("type") == "PodScheduled" and condition.values.get("status") == "False"
        if unscheduled and condition.values.get("reason") == "Unschedulable":
            return PodProblem.UNSCHEDULABLE, _message(condition)
    return next(_of_containers(status), (PodProblem.NONE, ""))


def _of_containers(status: Fields) -> Iterator[Found]:
    for container in (*status.sections("initContainerStatuses"), *status.sections("containerStatuses")):
        waiting = container.section("state").section("waiting")
        reason, name = waiting.text("reason"), container.text("name")
        if reason in IMAGE_REASONS:
            yield PodProblem.IMAGE, f"{name}: {_joined(reason, _message(waiting))}"
        elif reason in CONFIGURATION_REASONS:
            yield PodProblem.CONFIGURATION, f"{name}: {_joined(reason, _message(waiting))}"
        elif reason in CRASHING_REASONS or _was_started_again(container):
            yield PodProblem.CRASHING, f"{name}: {_last_end(container)}"


def _was_started_again(container: Fields) -> bool:
    """And is not serving since."""
    restarts = container.values.get("restartCount")
    ended_before = container.section("lastState").has("terminated") or container.section("state").has("terminated")
    return bool(restarts) and ended_before and container.values.get("ready") is not True


def _last_end(container: Fields) -> str:
    """The newest end that is known: the present one, or the one before the container waits or runs again."""
    ends = (container.section(state).section("terminated") for state in ("state", "lastState"))
    end = next((end for end in ends if end.values), None)
    restarts = f"restarts: {container.values.get('restartCount') or 0}"
    if end is None:
        return restarts
    why = _joined(f"{end.text('reason') or 'ended'} (exit code {end.values.get('exitCode')})", _message(end))
    return f"{restarts}, last end: {why}"


def _message(fields: Fields) -> str:
    """The last line; some messages of the kubelet are long."""
    value = fields.values.get("message")
    lines = value.strip().splitlines() if isinstance(value, str) else []
    return lines[-1][:500] if lines else ""


def _joined(reason: str, message: str) -> str:
    return ": ".join(part for part in (reason, message) if part)
