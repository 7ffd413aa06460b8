"""Log lines: fields of `extra` are kept, quoted when they need it, and JSON lines parse."""

import json
import logging
import sys

import pytest
from kvarn_engine.process.logs import JsonFormatter, KeyValueFormatter, LogSettings, configure_logging


def make_record(message: str, **fields: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "kvarn.test", "msg": message, "levelname": "INFO", **fields})


def test_fields_become_pairs() -> None:
    record = make_record("ready", address="127.0.0.1:80", request_id="r1", took_s=0.25)
    line = KeyValueFormatter("router").format(record)
    assert line.endswith("router kvarn.test: ready address=127.0.0.1:80 request_id=r1 took_s=0.25")


@pytest.mark.parametrize("value", ["two words", 'a"b', "a=b", "", "line\nbreak"])
def test_values_that_would_break_the_line_are_quoted(value: str) -> None:
    line = KeyValueFormatter("router").format(make_record("m", reason=value))
    assert line.endswith("reason=" + json.dumps(value))
    assert "\n" not in line


def test_json_lines_parse_and_hold_the_traceback() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        record = make_record("failed", exc_info=sys.exc_info(), request_id="r1")
    fields = json.loads(JsonFormatter("decode").format(record))
    assert fields["role"] == "decode"
    assert fields["request_id"] == "r1"
    assert "ValueError: broken" in fields["exception"]


def test_configuring_replaces_the_handlers(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        configure_logging("prefill", "warning", json=False)
        configure_logging("prefill", "warning", json=False)
        logging.getLogger("kvarn.test").info("quiet")
        logging.getLogger("kvarn.test").warning("loud", extra={"count": 2})
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("prefill kvarn.test: loud count=2")


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="log_level"):
        LogSettings(log_level="loud")
