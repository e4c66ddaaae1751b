"""Find the plain and encoded forms of many secrets in a text, in one pass.

The text may arrive in pieces.

One pattern finds the possible beginnings of forms; the forms with that beginning are then compared. (One pattern of all
forms would take long to compile: a key has thousands of characters.)
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from operator import itemgetter

from .secret import MIN_SECRET_LENGTH
from .secret_placeholders import build_placeholder

_OPENING = 8
"""Length of a form's beginning in the pattern. In a text that was cut (`…`), that much of a form is redacted."""
_CUT = "…"
"""Mark that Perdure puts in place of the rest of a text."""


class SecretFormFinder:
    """Finds the forms of secrets (plain or encoded) in texts, and replaces each by the placeholder of the secret."""

    __slots__ = ("_by_start", "_cuttable", "_names", "_pattern", "_sorted", "longest")

    def __init__(self, names: Mapping[str, str], cuttable: Mapping[str, int] | None = None) -> None:
        """Build the pattern for these forms, by form, with the name of the secret.

        `cuttable` has the forms of which a beginning is redacted too, and how much of it has to be there.
        """
        self._names = dict(names)
        self._cuttable = {form[:_OPENING]: (form, least) for form, least in (cuttable or {}).items()}
        self._sorted = sorted(names)
        self._by_start: dict[str, list[str]] = {}
        for form in sorted(names, key=len, reverse=True):
            self._by_start.setdefault(form[:MIN_SECRET_LENGTH], []).append(form)
        self._pattern = _compile_alternatives({form[:_OPENING] for form in names})
        self.longest = max(map(len, names), default=0)
        """Length of the longest form."""

    def replace_forms(self, text: str, *, continues: bool = False) -> tuple[str, str]:
        """Return the text with all forms of secrets replaced. With `continues`, also return its end that may be the
        beginning of one.
        """
        pieces: list[str] = []
        at = 0
        while (found := self._find_form(text, at)) is not None:
            start, end, name = found
            if continues and (opened := self._find_possible_start(text, at, end)) is not None:
                held = min(opened, start)
                return "".join([*pieces, text[at:held]]), text[held:]
            pieces += (text[at:start], build_placeholder(name))
            at = end
        opened = self._find_possible_start(text, at, len(text)) if continues else None
        held = len(text) if opened is None else opened
        if not at and held == len(text):
            return text, ""
        return "".join([*pieces, text[at:held]]), text[held:]

    def find_spans(self, text: str) -> list[tuple[int, int, str]]:
        """Return the start, the end and the name of each form in a text."""
        spans: list[tuple[int, int, str]] = []
        at = 0
        while (found := self._find_form(text, at)) is not None:
            spans.append(found)
            at = found[1]
        return spans

    def _find_form(self, text: str, at: int) -> tuple[int, int, str] | None:
        """Find the next form in the text, the longest at its start; it ends where a longer one begins inside it."""
        found = self._find_first_form(text, at, len(text), 0)
        if found is None:
            return None
        start, end = found
        name = self._get_name(text[start:end])
        longer = self._find_first_form(text, start + 1, end, end - start)
        return start, end if longer is None else longer[0], name

    def _find_first_form(self, text: str, at: int, stop: int, longer_than: int) -> tuple[int, int] | None:
        """Find the first form longer than `longer_than` that starts before `stop`; return its start and end."""
        within = min(len(text), stop + _OPENING - 1)
        while (opening := self._pattern.search(text, at, within)) is not None and opening.start() < stop:
            at = opening.start()
            for form in self._by_start[text[at : at + MIN_SECRET_LENGTH]]:
                if len(form) <= longer_than:
                    break
                if text.startswith(form, at):
                    return at, at + len(form)
            cut = text.find(_CUT, at + _OPENING, at + self.longest)
            if cut - at > longer_than and self._is_form_beginning(text[at:cut]):
                return at, cut
            if (cuttable := self._cuttable.get(text[at : at + _OPENING])) is not None:
                common = _measure_common_start(text, at, cuttable[0])
                if common >= max(cuttable[1], longer_than + 1):
                    return at, at + common
            at += 1
        return None

    def _get_name(self, found: str) -> str:
        """Return the name of the secret of a form, or of the beginning of one."""
        name = self._names.get(found)
        return self._names[self._sorted[bisect_left(self._sorted, found)]] if name is None else name

    def _find_possible_start(self, text: str, start: int, stop: int) -> int | None:
        """Return the first index where the text may be the beginning of a form that continues in later text."""
        for at in range(max(start, len(text) - self.longest + 1), stop):
            is_short = len(text) - at < MIN_SECRET_LENGTH
            if (is_short or text[at : at + MIN_SECRET_LENGTH] in self._by_start) and self._is_form_beginning(text[at:]):
                return at
        return None

    def _is_form_beginning(self, text: str) -> bool:
        following = bisect_right(self._sorted, text)
        return following < len(self._sorted) and self._sorted[following].startswith(text)


def replace_spans(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """Replace each span of a text by the placeholder of its secret; spans that overlap are replaced as one."""
    pieces: list[str] = []
    at = 0
    for start, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= at or not pieces:
            pieces += (text[at:start], build_placeholder(name))
        at = max(at, end)
    return "".join([*pieces, text[at:]])


def _measure_common_start(text: str, at: int, form: str) -> int:
    """Return how many characters of a form match the text at this index."""
    most = min(len(form), len(text) - at)
    return next((place for place in range(_OPENING, most) if text[at + place] != form[place]), most)


def _compile_alternatives(openings: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern that matches any of these texts, grouped by first character for speed."""
    groups: dict[str, list[str]] = {}
    for opening in sorted(openings):
        groups.setdefault(opening[0], []).append(re.escape(opening[1:]))
    alternatives = [f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in sorted(groups.items())]
    return re.compile("|".join(alternatives) or r"(?!)")


def map_forms_to_names(pairs: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """Map each form of a secret to the secret's name. A form that several secrets have belongs to the first."""
    names: dict[str, str] = {}
    for name, forms in pairs:
        for form in forms:
            names.setdefault(form, name)
    return names


def encode_forms_as_latin1(names: Mapping[str, str]) -> dict[str, str]:
    """Encode the forms of secrets for a search in bytes: each byte of their UTF-8 becomes one Latin-1 character."""
    return {form.encode().decode("latin-1"): name for form, name in sorted(names.items(), key=itemgetter(0))}
