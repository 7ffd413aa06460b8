"""Content of a workers file. Pure. Called by the watched file.

name.toml:  workers = ["host:port", ...]   and perhaps   draining = ["host:port", ...]
else:       one `host:port` a line, perhaps followed by `draining`; `#` starts a comment
"""

import tomllib

from kvarn_router.discovery.endpoint import Endpoint, EndpointKey

_KEYS = ("workers", "draining")


class BadWorkersFile(Exception):
    """Names the line where that is known, and what is wrong with it."""


def parse_workers(text: str, toml: bool) -> tuple[Endpoint, ...]:
    """Raises BadWorkersFile."""
    return _parse_toml(text) if toml else _parse_lines(text)


def _parse_lines(text: str) -> tuple[Endpoint, ...]:
    found: dict[str, Endpoint] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[1:] not in ([], ["draining"]):
            raise BadWorkersFile(
                f"line {number}: {' '.join(words[1:])!r} after the address; only 'draining' may follow"
            )
        found[words[0]] = _endpoint(words[0], number, found, draining=len(words) == 2)
    if not found:
        # An editor that truncates before it writes must not take every worker away.
        raise BadWorkersFile("line 1: names no worker")
    return tuple(found.values())


def _parse_toml(text: str) -> tuple[Endpoint, ...]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadWorkersFile(str(error)) from error
    unknown = sorted(set(content) - set(_KEYS))
    if unknown:
        raise BadWorkersFile(f"line {_line_of(text, unknown[0])}: unknown key {unknown[0]!r}")
    if "workers" not in content:
        raise BadWorkersFile("line 1: no key 'workers'")
    found: dict[str, Endpoint] = {}
    for key in _KEYS:
        addresses = content.get(key, [])
        if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
            raise BadWorkersFile(f"line {_line_of(text, key)}: {key!r} is not a list of strings")
        for address in addresses:
            found[address] = _endpoint(address, _line_of(text, address), found, draining=key == "draining")
    return tuple(found.values())


def _line_of(text: str, word: str) -> int:
    return next((number for number, line in enumerate(text.splitlines(), 1) if word in line), 1)


def _endpoint(address: str, line: int, found: dict[str, Endpoint], draining: bool) -> Endpoint:
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadWorkersFile(f"line {line}: {address!r} is not host:port")
    if address in found:
        raise BadWorkersFile(f"line {line}: {address!r} a second time")
    return Endpoint(EndpointKey(address), address, draining)
