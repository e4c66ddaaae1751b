"""Asks the person at the terminal whether calls may be made. Above: `drive.py`. Below: `keyboard.py`, `screen.py`.

One question for all calls of a reply. Tool, action, target and arguments are shown so that nothing in them can pretend
to be something else, and so is the rule that each answer but "once" would make.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from perdure.core.event import Scope
from perdure.core.permission import PermissionRequest, Verdict, rules_for
from perdure.core.plain import to_text

from .home import grants_file
from .keyboard import Keyboard
from .screen import Screen, one_line

SHOWN: Final = 2000
"""Characters of a target or of arguments; of longer ones the number of the rest is told."""

_CHOICES: Final = "[a]llow once, [s]ession, [t]arget, [f]orever, [d]eny: "
_NO: Final = Verdict(allow=False, reason="permission denied at the terminal")
_ANSWERS: Final[Mapping[str, Scope | None]] = {
    "allow": "once",
    "session": "session",
    "target": "session_target",
    "forever": "forever",
    "deny": None,
}
_REACH: Final[Mapping[str, str]] = {"session": "this session", "session_target": "this session", "forever": "ever"}


class TerminalQuestion:
    """The handler of a gate that asks at the terminal."""

    def __init__(self, screen: Screen, keyboard: Keyboard) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._may_ask = asyncio.Event()

    def all_shown(self) -> None:
        """Everything that came before the question is on the screen: it may be put now."""
        self._may_ask.set()

    async def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        await self._may_ask.wait()
        self._may_ask.clear()
        async with self._keyboard.alone:
            self._keyboard.forget_typed()
            self._screen.ask("".join(["May this be done?\n", *[_described(each) for each in requests], _CHOICES]))
            scope = await self._answer()
        if scope == "forever":
            self._screen.note(f"kept in {grants_file()}; delete its line there to take it back")
        return [_NO if scope is None else _agreed(each, scope) for each in requests]

    async def _answer(self) -> Scope | None:
        """How far the yes of the person reaches; `None` for a no, and for the end of the input."""
        while (line := await self._keyboard.line()) is not None:
            said = line.strip().lower()
            for word, scope in _ANSWERS.items():
                if said in (word, word[0]):  # in full or by its letter: "forget it" is not "forever"
                    return scope
            self._screen.ask(_CHOICES)
        return None


def _agreed(request: PermissionRequest, scope: Scope) -> Verdict:
    """A yes, with the very rule that it makes as its reason."""
    rule = rules_for(request).get(scope)
    beyond = "" if rule is None else f", for {_REACH[scope]}: {rule}"
    return Verdict(allow=True, reason=f"allowed at the terminal{beyond}", scope=scope)


def _described(request: PermissionRequest) -> str:
    """One call, with all that matters about it, and what a yes would allow from then on. A line each."""
    lines = [f"  {one_line(request.tool)}", f"    action: {one_line(request.action)}"]
    lines.append(f"    target: {_in_full(request.target)}")
    lines.append(f"    arguments: {_in_full(to_text(request.arguments))}")
    rules = rules_for(request)
    lines.append(f"    session: {_in_full(rules['session'])}")
    lines.append(f"    target, forever: {_in_full(rules['forever'])}")
    return "\n".join(lines) + "\n"


def _in_full(text: str) -> str:
    rest = len(text) - SHOWN
    return one_line(text) if rest <= 0 else f"{one_line(text[:SHOWN])} … and {rest:,} characters more"
