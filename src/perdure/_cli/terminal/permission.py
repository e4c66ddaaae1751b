"""Ask the user at the terminal whether tool calls may run, one call after the other.

All of a call is shown before its answer is taken, page by page if it is long, in rows that nothing in the call can
imitate. An answer is for one call. For one that lasts, the user also chooses from the rules that it can create.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click
import msgspec

from perdure._core.permission.grants import Offer, list_offers
from perdure._core.permission.request import PermissionRequest, Verdict
from perdure._core.values.event import Scope
from perdure._core.values.event_class import Event, QuestionAsked

from .approval import add_call_rows
from .frame import MIN_WIDTH, make_frame, split_pages
from .input import LineReader
from .output import TerminalOutput, measure_terminal, uses_styles

_NO: Final = Verdict(allow=False, reason="permission denied at the terminal")
_TOO_NARROW: Final = Verdict(
    allow=False, reason="permission denied: the terminal is too narrow to show the call to a person"
)
_CHOICES: Final = "[y]es, [n]o, [r]un, [s]ession, [f]orever, [?] help: "
_SHORT_CHOICES: Final = "y, n, r, s, f or ?: "
_MORE: Final = "Enter: more, n: deny, end: skip: "
_DENY_ALL: Final = "deny all"
_BY: Final = "the user at the terminal"
_WORDS: Final[Mapping[str, Scope | None]] = {
    **dict.fromkeys(("y", "yes", "a", "allow"), "once"),
    **dict.fromkeys(("r", "run"), "run"),
    **dict.fromkeys(("s", "session"), "session"),
    **dict.fromkeys(("f", "forever"), "forever"),
    **dict.fromkeys(("n", "no", "d", "deny"), None),
}
_HELP: Final = (
    ("y, yes", "allow this call, once"),
    ("n, no", "deny it; the model is told"),
    ("r, run", "allow such calls in this run; you choose which"),
    ("s, session", "allow such calls in this session; you choose which"),
    ("f, forever", "allow such calls in every session, until you revoke it; you choose which"),
    (_DENY_ALL, "deny this call and the others of this reply"),
)
_REACH: Final[Mapping[Scope, str]] = {
    "run": "in this run",
    "session": "in this session",
    "forever": "in every session, until you revoke it",
}


class _DenyAll(Exception):
    """Raised when the user denies all remaining calls, or the input has ended."""


class TerminalPermissionPrompt:
    """Permission handler that asks the user at the terminal whether each tool call may run, and for how long."""

    def __init__(self, screen: TerminalOutput, keyboard: LineReader) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._may_ask = asyncio.Semaphore(0)
        self._paths: dict[str, str] = {}

    def allow_asking(self, event: Event) -> None:
        """Let one question be asked, because all events up to the one that asked it have been printed."""
        if isinstance(event, QuestionAsked):
            self._paths.update({call["call_id"]: event.path for call in event.calls})
        self._may_ask.release()

    async def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        await self._may_ask.acquire()
        verdicts: list[Verdict] = []
        async with self._keyboard.lock:
            try:
                for number, request in enumerate(requests, 1):
                    verdicts.append(await self._ask(request, number, len(requests)))
            except _DenyAll:
                verdicts += [_NO] * (len(requests) - len(verdicts))
        return verdicts

    async def _ask(self, request: PermissionRequest, number: int, count: int) -> Verdict:
        """Show one tool call in full, and return the user's verdict about it."""
        if measure_terminal(sys.stderr).columns < MIN_WIDTH:
            self._screen.note(f"the terminal has fewer than {MIN_WIDTH} columns: the call is denied")
            return _TOO_NARROW
        frame = make_frame(sys.stderr)
        add_call_rows(frame, msgspec.to_builtins(request), self._paths.get(request.call_id, ""))
        self._write_head(f"Allow this call? ({number} of {count}, {len(frame.rows):,} rows)")
        if not await self._show_rows(frame.rows):
            return _NO
        while True:
            scope = await self._read_scope()
            if scope is None:
                return _NO
            if scope == "once":
                return Verdict(allow=True, reason="allowed at the terminal", by=_BY)
            if (offer := await self._choose_offer(request, scope)) is not None:
                reason = f"allowed at the terminal, {_REACH[scope]}: {offer.rule}"
                return Verdict(allow=True, reason=reason, scope=scope, covers=offer.covers, by=_BY)

    async def _show_rows(self, rows: Sequence[str]) -> bool:
        """Show rows page by page; return False if the user denies the call before the last one."""
        pages = split_pages(rows, measure_terminal(sys.stderr).rows)
        shown = 0
        for page in pages[:-1]:
            self._write_rows(page)
            shown += len(page)
            answer = await self._read_answer(f"({shown:,} of {len(rows):,} rows) {_MORE}")
            if answer in {"n", "no", "d", "deny"}:
                return False
            if answer == "end":
                skipped = len(rows) - shown - len(pages[-1])
                self._screen.write_question(f"({skipped:,} rows are skipped, and not seen)\n")
                break
        self._write_rows(pages[-1])
        return True

    async def _read_scope(self) -> Scope | None:
        """Read the scope of an approval from the user; `None` if the user denies the call."""
        while True:
            narrow = measure_terminal(sys.stderr).columns <= len(_CHOICES)
            answer = await self._read_answer(_SHORT_CHOICES if narrow else _CHOICES)
            if answer in _WORDS:  # in full or by its letter: "forget it" is not "forever"
                return _WORDS[answer]
            if answer in {"?", "h", "help"}:
                frame = make_frame(sys.stderr)
                for words, meaning in _HELP:
                    frame.add_label(f"{words}: {meaning}")
                self._write_rows(frame.rows)

    async def _choose_offer(self, request: PermissionRequest, scope: Scope) -> Offer | None:
        """Show the rules that a lasting approval can create, and return the one that the user chooses, if any."""
        offers = list_offers(request)
        frame = make_frame(sys.stderr)
        frame.add_label(f"{_REACH[scope]}, allow without asking:")
        for number, offer in enumerate(offers, 1):
            frame.add_value(f"{number}", offer.matches)
            frame.add_value("  rule", offer.rule)
            frame.add_value("  so far", _describe_earlier(offer))
        if scope == "forever":
            frame.add_label("it is listed by perdure permissions list, and revoked by perdure permissions revoke")
        if not await self._show_rows(frame.rows):
            return None
        while True:
            answer = await self._read_answer(f"Which? 1 to {len(offers)}, or [n]one of them: ")
            if answer in {"n", "no", "none"}:
                return None
            if answer.isascii() and answer.isdecimal() and 1 <= int(answer[:9]) <= len(offers):
                return offers[int(answer) - 1]

    async def _read_answer(self, prompt: str) -> str:
        """Ask for one line and return it in lower case; what was typed before the prompt is discarded."""
        self._keyboard.discard_typed()
        self._screen.write_question(prompt)
        line = await self._keyboard.read_line()
        if line is None:
            raise _DenyAll
        answer = " ".join(line.lower().split())
        if answer == _DENY_ALL:
            raise _DenyAll
        return answer

    def _write_head(self, text: str) -> None:
        """Write a heading on a separate row, in a style that untrusted text cannot have."""
        self._screen.end_line()
        self._screen.write_question((click.style(text, reverse=True) if uses_styles() else text) + "\n")

    def _write_rows(self, rows: Sequence[str]) -> None:
        self._screen.write_question("".join([f"{row}\n" for row in rows]))


def _describe_earlier(offer: Offer) -> str:
    """Return the earlier calls of the session that a rule would have matched, as text."""
    if not offer.matched_count:
        return "it would have matched no earlier call of this session"
    plural = "call" if offer.matched_count == 1 else "calls"
    return f"it would have matched {offer.matched_count} earlier {plural}, such as {'; '.join(offer.matched)}"
