"""Ask the user at the terminal whether tool calls may run.

All calls of a reply are one question. Tool, action, target and arguments are shown with control characters made
visible, and so is the rule that each answer except "once" would create.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from perdure.core.event import Scope
from perdure.core.jsonable import to_text
from perdure.core.permission import PermissionRequest, Verdict, rules_by_scope

from .home import grants_path
from .line_input import LineReader
from .screen import Screen, to_one_line

MAX_SHOWN: Final = 2000
"""Characters shown of a target or of arguments; for longer ones the number of the rest is printed."""

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


class TerminalPermissionPrompt:
    """Permission handler that asks the user at the terminal whether tool calls may run, and for how long."""

    def __init__(self, screen: Screen, keyboard: LineReader) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._may_ask = asyncio.Event()

    def allow_asking(self) -> None:
        """Release the question: all earlier events have been printed."""
        self._may_ask.set()

    async def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        await self._may_ask.wait()
        self._may_ask.clear()
        async with self._keyboard.lock:
            self._keyboard.discard_typed()
            self._screen.write_question(
                "".join(["Allow this?\n", *[_describe_call(each) for each in requests], _CHOICES])
            )
            scope = await self._read_scope()
        if scope == "forever":
            self._screen.note(f"saved in {grants_path()}; delete its line there to revoke it")
        return [_NO if scope is None else _build_approval(each, scope) for each in requests]

    async def _read_scope(self) -> Scope | None:
        """Read the scope of the approval; `None` for a no, and at the end of the input."""
        while (line := await self._keyboard.read_line()) is not None:
            said = line.strip().lower()
            for word, scope in _ANSWERS.items():
                if said in (word, word[0]):  # in full or by its letter: "forget it" is not "forever"
                    return scope
            self._screen.write_question(_CHOICES)
        return None


def _build_approval(request: PermissionRequest, scope: Scope) -> Verdict:
    """Build an approval whose reason names the rule that it creates."""
    rule = rules_by_scope(request).get(scope)
    beyond = "" if rule is None else f", for {_REACH[scope]}: {rule}"
    return Verdict(allow=True, reason=f"allowed at the terminal{beyond}", scope=scope)


def _describe_call(request: PermissionRequest) -> str:
    """Describe one call on several lines, with the rules that an approval would create."""
    lines = [f"  {to_one_line(request.tool)}", f"    action: {to_one_line(request.action)}"]
    lines.append(f"    target: {_shorten(request.target)}")
    lines.append(f"    arguments: {_shorten(to_text(request.arguments))}")
    rules = rules_by_scope(request)
    lines.append(f"    session: {_shorten(rules['session'])}")
    lines.append(f"    target, forever: {_shorten(rules['forever'])}")
    return "\n".join(lines) + "\n"


def _shorten(text: str) -> str:
    rest = len(text) - MAX_SHOWN
    return to_one_line(text) if rest <= 0 else f"{to_one_line(text[:MAX_SHOWN])} … and {rest:,} characters more"
