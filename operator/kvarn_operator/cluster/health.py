"""What the kubelet is told of this process. Asked by the probes' endpoint, on threads of its own.

`/live` is 200 while every part of the process gets on; `/ready` is 200 once the operator has seen the cluster, leading
or standing by. Both say why not.
"""

from kvarn_operator.cluster.progress import Progress


class Health:
    """Answers are empty when all is well."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.waits_for = "the first view of the cluster"
        """Empty once the operator is ready."""

    def live(self) -> str:
        return ", ".join(f"{each.part} is silent for {each.silent_s:.0f} s" for each in self._progress.stalls())

    def ready(self) -> str:
        return f"waits: {self.waits_for}" if self.waits_for else ""
