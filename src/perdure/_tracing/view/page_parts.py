"""Parts of self-contained web pages: colours, templates, hashes for the Content-Security-Policy, and escaping."""

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

_THEME: Final = Path(__file__).parent / "page" / "theme.css"
_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)
"""Characters that no page may contain, that show nothing, or that turn the reading direction."""


@cache
def read_theme() -> str:
    """Return the style sheet with the colours of all pages, for light and dark screens."""
    return _THEME.read_text("utf-8")


def hash_source(text: str) -> str:
    """Return the hash by which a page's Content-Security-Policy allows this script or style."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def fill_template(template: str, parts: Mapping[str, str]) -> str:
    """Replace each `{{NAME}}` in a template by the part of that name, but not inside the parts."""
    head, *rest = template.split("{{")
    return head + "".join([_fill_piece(each, parts) for each in rest])


def _fill_piece(piece: str, parts: Mapping[str, str]) -> str:
    name, _, rest = piece.partition("}}")
    return parts[name] + rest


def encode_for_script(value: Any) -> str:
    """Encode a value as JSON for a `<script>` element: no character of it can end the element."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def escape_text(text: str) -> str:
    """Escape text for the content or an attribute of an HTML element, so that a browser never reads it as markup.

    Control characters, and those that turn the reading direction, are shown as their codes.
    """
    return html.escape(_CONTROLS.sub(_name_character, text))


def _name_character(found: "re.Match[str]") -> str:
    return f"\\u{ord(found[0]):04x}"
