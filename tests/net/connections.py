"""Every connection that the process makes, seen where the interpreter asks the kernel for it.

    with watch_connections() as connections:
        ...
    assert connections == ["127.0.0.1"]

A connection to anything but the loopback is noted and then refused, so that no test leaves the machine.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

_watchers: list[list[str]] = []
_is_hooked: list[bool] = []


def _note(event: str, details: tuple[Any, ...]) -> None:
    if event != "socket.connect" or not _watchers or not isinstance(details[1], tuple):
        return
    host = str(details[1][0])
    for each in _watchers:
        each.append(host)
    if not ip_address(host.partition("%")[0]).is_loopback:
        raise ConnectionRefusedError(111, "refused by the test")


@contextmanager
def watch_connections() -> Iterator[list[str]]:
    """Give the list of the addresses that connections go to while the block lasts."""
    if not _is_hooked:
        _is_hooked.append(True)
        sys.addaudithook(_note)  # stays for good: there is no way to take it back
    seen: list[str] = []
    _watchers.append(seen)
    try:
        yield seen
    finally:
        _watchers.remove(seen)
