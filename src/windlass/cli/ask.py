"""Asks the person at the terminal whether calls may be made. Above: `drive.py`. Below: `screen.py`, `home.py`.

One question for all calls of a reply. Tool, action, target and arguments are shown so that nothing in them can pretend
to be something else.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from windlass.core.permission import NO_ANSWER, Grant, PermissionRequest, Verdict, decision_of
from windlass.core.plain import to_text
from windlass.core.thread import THREADS

from .home import grants_file, keep_grant
from .screen import Screen, one_line

SHOWN: Final = 2000
"""Characters of a target or of arguments; of longer ones the number of the rest is told."""

_CHOICES: Final = "[a]llow once, [s]ession, [t]arget, [f]orever, [d]eny: "
_ANSWERS: Final[Mapping[str, Verdict]] = {
    "allow": Verdict(allow=True, reason="allowed at the terminal"),
    "session": Verdict(allow=True, reason="allowed at the terminal, for this session", scope="session"),
    "target": Verdict(allow=True, reason="allowed at the terminal, for this target", scope="session_target"),
    "forever": Verdict(allow=True, reason="allowed at the terminal, for ever", scope="forever"),
    "deny": Verdict(allow=False, reason="permission denied at the terminal"),
}


class TerminalQuestion:
    """The handler of a gate that asks at the terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._may_ask = asyncio.Event()

    def all_shown(self) -> None:
        """Everything that came before the question is on the screen: it may be put now."""
        self._may_ask.set()

    async def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        await self._may_ask.wait()
        self._may_ask.clear()
        _forget_typed()
        self._screen.ask("".join(["May this be done?\n", *[_described(each) for each in requests], _CHOICES]))
        verdict = await self._answer()
        if verdict.scope == "forever":
            for request in requests:
                keep_grant(Grant.of_decision(decision_of(request, verdict), request.session_id))
            self._screen.note(f"kept in {grants_file()}; delete its line there to take it back")
        return [verdict] * len(requests)

    async def _answer(self) -> Verdict:
        """What the person says. The end of the input is a no."""
        while line := await THREADS.run(os.read, (sys.stdin.fileno(), 4096), {}):
            said = line.decode(errors="replace").strip().lower()
            for word, verdict in _ANSWERS.items():
                if said in (word, word[0]):  # in full or by its letter: "forget it" is not "forever"
                    return verdict
            self._screen.ask(_CHOICES)
        return NO_ANSWER


def _described(request: PermissionRequest) -> str:
    """One call, with all that matters about it. A line each, whatever is in them."""
    lines = [f"  {one_line(request.tool)}", f"    action: {one_line(request.action)}"]
    lines.append(f"    target: {_in_full(request.target)}")
    lines.append(f"    arguments: {_in_full(to_text(request.arguments))}")
    return "\n".join(lines) + "\n"


def _in_full(text: str) -> str:
    rest = len(text) - SHOWN
    return one_line(text) if rest <= 0 else f"{one_line(text[:SHOWN])} … and {rest:,} characters more"


def _forget_typed() -> None:
    """What was typed before the question was there is no answer to it."""
    try:
        import termios
    except ImportError:  # not on Windows
        return
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
