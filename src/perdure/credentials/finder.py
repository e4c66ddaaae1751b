"""Finds any of many texts in a text, in one pass, also when the text comes in pieces. Above: `scrub.py`. Below: `re`.

One pattern finds where a form may begin; the forms that begin like that are then compared. (One pattern of all forms
would take long to compile: a key has thousands of characters.)
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from operator import itemgetter

from .secret import SHORTEST
from .substitute import placeholder

_OPENING = 8
"""How much of a form the pattern holds. Of a text that was cut (`…`), so much of a form gives it away."""
_CUT = "…"
"""What Perdure puts where it leaves out the rest of a text."""


class Finder:
    """Knows forms by heart, each with the name that stands for it."""

    __slots__ = ("_by_start", "_names", "_pattern", "_sorted", "longest")

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._sorted = sorted(names)
        self._by_start: dict[str, list[str]] = {}
        for form in sorted(names, key=len, reverse=True):
            self._by_start.setdefault(form[:SHORTEST], []).append(form)
        self._pattern = _one_of({form[:_OPENING] for form in names})
        self.longest = max(map(len, names), default=0)
        """How long the longest form is."""

    def scrubbed(self, text: str, *, more: bool = False) -> tuple[str, str]:
        """The text without the forms in it; and its end, if `more` may come that makes a form of it."""
        pieces: list[str] = []
        at = 0
        while (found := self._find(text, at)) is not None:
            start, end, name = found
            if more and (opened := self._open(text, at, end)) is not None:
                held = min(opened, start)
                return "".join([*pieces, text[at:held]]), text[held:]
            pieces += (text[at:start], placeholder(name))
            at = end
        opened = self._open(text, at, len(text)) if more else None
        held = len(text) if opened is None else opened
        if not at and held == len(text):
            return text, ""
        return "".join([*pieces, text[at:held]]), text[held:]

    def _find(self, text: str, at: int) -> tuple[int, int, str] | None:
        """The first form, and the longest that begins there. Where a longer one begins inside it, it ends there."""
        found = self._first(text, at, len(text), 0)
        if found is None:
            return None
        start, end = found
        name = self._named(text[start:end])
        longer = self._first(text, start + 1, end, end - start)
        return start, end if longer is None else longer[0], name

    def _first(self, text: str, at: int, stop: int, longer_than: int) -> tuple[int, int] | None:
        """Where a form that is longer than that begins before `stop`, and where it ends."""
        within = min(len(text), stop + _OPENING - 1)
        while (opening := self._pattern.search(text, at, within)) is not None and opening.start() < stop:
            at = opening.start()
            for form in self._by_start[text[at : at + SHORTEST]]:
                if len(form) <= longer_than:
                    break
                if text.startswith(form, at):
                    return at, at + len(form)
            cut = text.find(_CUT, at + _OPENING, at + self.longest)
            if cut - at > longer_than and self._begins_a_form(text[at:cut]):
                return at, cut
            at += 1
        return None

    def _named(self, found: str) -> str:
        """The name for a form, or for the beginning of one."""
        name = self._names.get(found)
        return self._names[self._sorted[bisect_left(self._sorted, found)]] if name is None else name

    def _open(self, text: str, start: int, stop: int) -> int | None:
        """The first place from which on the text may be a form, or a longer one, once more of it has come."""
        for at in range(max(start, len(text) - self.longest + 1), stop):
            is_short = len(text) - at < SHORTEST
            if (is_short or text[at : at + SHORTEST] in self._by_start) and self._begins_a_form(text[at:]):
                return at
        return None

    def _begins_a_form(self, text: str) -> bool:
        following = bisect_right(self._sorted, text)
        return following < len(self._sorted) and self._sorted[following].startswith(text)


def _one_of(openings: Iterable[str]) -> re.Pattern[str]:
    """A pattern for any of these. Those with the same first character are put together, which makes it quick."""
    groups: dict[str, list[str]] = {}
    for opening in sorted(openings):
        groups.setdefault(opening[0], []).append(re.escape(opening[1:]))
    alternatives = [f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in sorted(groups.items())]
    return re.compile("|".join(alternatives) or r"(?!)")


def named_forms(pairs: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """Each form with its name. The first name keeps a form that several have."""
    names: dict[str, str] = {}
    for name, forms in pairs:
        for form in forms:
            names.setdefault(form, name)
    return names


def as_bytes(names: Mapping[str, str]) -> dict[str, str]:
    """The same forms as they stand in bytes, each byte as one character."""
    return {form.encode().decode("latin-1"): name for form, name in sorted(names.items(), key=itemgetter(0))}
