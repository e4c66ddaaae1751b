"""The forms of a secret in text (plain, in parts, encoded), and a search for all of them in one pass."""

import base64
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from .secret import MIN_SECRET_LENGTH, build_placeholder, is_a

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


SHORTEST_LINE = 6
"""Shorter lines of a value are not searched for on their own: `{`, `end`, `true`."""
SHORTEST_LEAF = 16
"""Strings of at least this length in a JSON value are searched for on their own: a key in a service account."""
SHORTEST_START = 8
"""Length of the shortest beginning of a value that is redacted on its own."""
_LABEL = re.compile(r"[A-Za-z]{2,10}[-_](?:[A-Za-z]{2,6}[-_])?")
"""First part of many tokens, which says what they are: `sk-live-`, `ghp_`."""
_TOKEN = re.compile(r"[^\s{}\[\]\"'<>]+")
_WRAPPED = (64, 76)
"""Line lengths at which programs wrap base64."""
_ARMOUR = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
"""First and last lines of a key, which are the same for all keys."""
_UNESCAPED = ("", "/", "!'()*", "/:", "!$&'()*+,;=:@/", "!$&'()*+,;=:@/?#[]~")
"""Characters that URL encodings leave as they are, besides letters, digits, `_`, `.`, `-` and `~`."""


def list_secret_forms(value: str) -> list[str]:
    """Return every text that would reveal a secret: its encodings and its secret parts, the longest first."""
    forms = {form for piece in _list_secret_parts(value) for form in _list_encodings(piece)}
    forms.update(_yield_base64_lines(value))
    return sorted((form for form in forms if len(form) >= MIN_SECRET_LENGTH), key=lambda form: (-len(form), form))


def list_unencoded_forms(value: str) -> list[str]:
    """Return the unencoded forms of a secret: the value and its secret parts, with and without blanks around them."""
    parts = _list_secret_parts(value)
    return sorted({*parts, *[each.strip() for each in parts]})


def find_revealing_prefix_length(value: str) -> int | None:
    """Return the length from which a prefix of a secret is redacted too; `None` if a prefix may be ordinary text.

    A token is one word. In others, such as a URL, the first words are often those of many texts.
    """
    label = _LABEL.match(value)
    least = max(SHORTEST_START, 0 if label is None else label.end() + 4)
    return least if len(value) > least and _TOKEN.fullmatch(value) and "://" not in value else None


def _list_secret_parts(value: str) -> set[str]:
    """Return the secret, and the parts of it that are secret by themselves."""
    pieces = {value, value.strip()}
    lines = value.splitlines()
    if len(lines) > 1:
        pieces.add("\r\n".join(lines))
        pieces.update(each for line in lines if _is_searchable_line(each := line.strip()))
    if value.lstrip()[:1] in {"{", "["}:
        pieces.update(_yield_json_parts(value))
    return pieces


def _is_searchable_line(line: str) -> bool:
    return len(line) >= SHORTEST_LINE and _ARMOUR.fullmatch(line) is None


def _yield_json_parts(value: str) -> Iterator[str]:
    """Yield the secret's JSON in other layouts, and the long strings in it."""
    import json

    try:
        document = json.loads(value)
        for ascii_only in (True, False):
            yield json.dumps(document, ensure_ascii=ascii_only)
            yield json.dumps(document, ensure_ascii=ascii_only, separators=(",", ":"))
            yield json.dumps(document, ensure_ascii=ascii_only, indent=2)
        for leaf in _yield_strings(document):
            if len(leaf) >= SHORTEST_LEAF and "://" not in leaf:
                yield leaf
                yield from filter(_is_searchable_line, map(str.strip, leaf.splitlines()))
    except (ValueError, RecursionError):  # it only looks like JSON
        return


def _yield_strings(document: Any) -> Iterator[str]:
    if is_a(document, str):
        yield document
        return
    inner: Iterable[Any] = document.values() if is_a(document, dict) else document if is_a(document, list) else ()
    for each in inner:
        yield from _yield_strings(each)


def _list_encodings(text: str) -> set[str]:
    """Return the encodings of a text that programs commonly write."""
    once = {text, *_yield_escapes(text), *_yield_quotings(text)}
    twice = {again for each in once for again in _yield_json_escapes(each)}
    data = text.encode()
    return {*once, *twice, *_yield_url_encodings(text), *_yield_base64(data), data.hex(), data.hex().upper()}


def _yield_json_escapes(text: str) -> Iterator[str]:
    import json

    ascii_only = json.dumps(text)[1:-1]
    yield ascii_only
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    if "\\u" in ascii_only:
        yield re.sub(r"\\u[0-9a-f]{4}", lambda found: "\\u" + found[0][2:].upper(), ascii_only)


def _yield_escapes(text: str) -> Iterator[str]:
    """Yield a text escaped as in JSON (also with `/`, `<`, `>` and `&` escaped) and in a `repr`."""
    for form in _yield_json_escapes(text):
        yield form
        yield form.replace("/", "\\/")
        yield re.sub("[<>&'\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", form)
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    yield repr(text.encode())[2:-1]


def _yield_quotings(text: str) -> Iterator[str]:
    """Yield a text escaped as in HTML and in a shell command."""
    import html
    import shlex

    yield html.escape(text)
    yield html.escape(text, quote=False)
    yield shlex.quote(text).removeprefix("'").removesuffix("'")


def _yield_url_encodings(text: str) -> Iterator[str]:
    from urllib.parse import quote, quote_plus

    written = [quote(text, safe=unescaped) for unescaped in _UNESCAPED]
    for form in (*written, *map(quote, written), quote_plus(text), quote_plus(text, safe="/")):
        yield form
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form)


def _yield_base64(data: bytes) -> Iterator[str]:
    """Yield the base64 of the value, and its part in the base64 of a longer text, at each alignment.

    Each character has six bits. The characters at both ends that are shared with other bytes contain at most four bits
    of the value, and are left out.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(data).decode()
        yield whole
        yield whole.rstrip("=")
        for shift in range(3):
            encoded = encode(bytes(shift) + data).decode()
            yield encoded[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]


def _yield_base64_lines(value: str) -> Iterator[str]:
    """Yield the lines of the base64 of a long value, as programs wrap them."""
    whole = base64.b64encode(value.encode()).decode()
    for width in _WRAPPED:
        if len(whole) > width:
            lines = [whole[at : at + width] for at in range(0, len(whole), width)]
            yield from (line for line in lines if len(line.rstrip("=")) >= SHORTEST_LINE)
