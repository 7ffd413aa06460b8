"""The log lines of many processes on one terminal: each prefixed with its process and in that process's colour."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from kvarn_cli.stack_plan import ProcessPlan

COLOURS = {"prefill": "cyan", "decode": "magenta", "router": "green", "model": "yellow"}
NAME_WIDTH = 10


class LogView:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._held: list[Text] | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep log lines back, so that they do not cut an answer that is being written; they follow after it."""
        self._held = []
        try:
            yield
        finally:
            lines, self._held = self._held, None
            for line in lines:
                self._print(line)

    def show_line(self, plan: ProcessPlan, line: str) -> None:
        self.show(plan.role, plan.name, line)

    def show(self, role: str, name: str, line: str) -> None:
        prefix = Text(f"{name:<{NAME_WIDTH}} │ ", style=COLOURS.get(role, "white"))
        if self._held is not None:
            self._held.append(prefix + Text(line))
        else:
            self._print(prefix + Text(line))

    def _print(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True, highlight=False)
