"""The log lines of many processes on one terminal: each prefixed with its process and in that process's colour."""

from rich.console import Console
from rich.text import Text

from kvarn_cli.stack_plan import ProcessPlan

COLOURS = {"prefill": "cyan", "decode": "magenta", "router": "green", "model": "yellow"}
NAME_WIDTH = 10


class LogView:
    def __init__(self, console: Console) -> None:
        self._console = console

    def show_line(self, plan: ProcessPlan, line: str) -> None:
        self.show(plan.role, plan.name, line)

    def show(self, role: str, name: str, line: str) -> None:
        prefix = Text(f"{name:<{NAME_WIDTH}} │ ", style=COLOURS.get(role, "white"))
        self._console.print(prefix + Text(line), soft_wrap=True, highlight=False)
