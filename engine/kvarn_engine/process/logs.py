"""Structured logs of one process, on standard error: `key=value` lines or one JSON object a line.

Fields travel in `extra`: `logger.info("ready", extra={"address": address})`. Called once, by each composition root.
Loggers are named `kvarn.<part>`. Prompt text never goes into a log; nothing here can check that.
"""

import json as json_module
import logging
import sys
import time
from dataclasses import dataclass

LEVELS = ("debug", "info", "warning", "error")

STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings group that a process may use as it stands."""

    log_level: str = "info"
    """Least severe level shown: debug, info, warning or error."""

    log_json: bool = False
    """One JSON object a line instead of key=value."""

    def __post_init__(self) -> None:
        if self.log_level not in LEVELS:
            raise ValueError(f"log_level is {self.log_level!r}, not one of {', '.join(LEVELS)}")


def configure_logging(role: str, level: str = "info", json: bool = False) -> None:
    """Replace the root handlers by one that writes structured lines marked with `role`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(role) if json else KeyValueFormatter(role))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


class KeyValueFormatter(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        pairs = "".join(f" {name}={_quoted(value)}" for name, value in _extra_fields(record).items())
        head = f"{_timestamp(record)} {record.levelname:<7} {self._role} {record.name}: "
        return f"{head}{record.getMessage()}{pairs}" + _traceback(self, record)


class JsonFormatter(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "role": self._role,
            "logger": record.name,
            "message": record.getMessage(),
            **_extra_fields(record),
        }
        trace = _traceback(self, record)
        return json_module.dumps({**fields, "exception": trace.strip()} if trace else fields, default=str)


def _extra_fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD_FIELDS}


def _timestamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return "\n" + formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _quoted(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    plain = bool(text) and all(c.isprintable() and not c.isspace() and c not in '"=' for c in text)
    return text if plain else json_module.dumps(text)
