"""Draw the screen of a terminal as SVG, from its text with escape sequences for styles, as tmux captures it.

A cell has a character and a style; neighbours of one style are one element, placed by their columns, so that the
picture is right with any monospaced font. Only styles are understood: a captured screen has nothing else.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

CELL_WIDTH, CELL_HEIGHT, MARGIN, BAR = 8.4, 18, 14, 34
FOREGROUND, BACKGROUND = "#d7dde4", "#15191f"
NAMED = (
    "#4d5660", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#d7dde4",
    "#8b949e", "#ffa198", "#aff5b4", "#f2cc60", "#a5d6ff", "#e2c5ff", "#a2eef2", "#ffffff",
)  # fmt: skip
"""The sixteen colours of terminals, readable on the background."""

_SEQUENCE = re.compile(r"\x1b\[([\d;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-B]|[\x0e\x0f]")


class Style(NamedTuple):
    """The colours and the typeface of a cell."""

    color: str = ""
    background: str = ""
    is_bold: bool = False
    is_faint: bool = False
    is_italic: bool = False
    is_underlined: bool = False
    is_reversed: bool = False


class Cell(NamedTuple):
    """A character at its place."""

    column: int
    text: str
    style: Style


CODES: dict[int, dict[str, str | bool]] = {
    1: {"is_bold": True},
    2: {"is_faint": True},
    3: {"is_italic": True},
    4: {"is_underlined": True},
    7: {"is_reversed": True},
    22: {"is_bold": False, "is_faint": False},
    23: {"is_italic": False},
    24: {"is_underlined": False},
    27: {"is_reversed": False},
    39: {"color": ""},
    49: {"background": ""},
    **{first + at: {"color": NAMED[at + shift]} for first, shift in ((30, 0), (90, 8)) for at in range(8)},
    **{first + at: {"background": NAMED[at + shift]} for first, shift in ((40, 0), (100, 8)) for at in range(8)},
}
"""The changes of a style, by the numbers of escape sequences; 0 ends all styles."""
EXTENDED = {38: "color", 48: "background"}
"""Numbers that are followed by a colour: 5 and one of 256, or 2 and its red, green and blue."""
INDEXED, CUBE, GRAYS = 5, 16, 232


def find_color(number: int) -> str:
    """Return one of the 256 colours of terminals: the named ones, a cube of six levels, and grays."""
    if number < CUBE:
        return NAMED[number]
    if number >= GRAYS:
        return f"#{8 + (number - GRAYS) * 10:02x}" + f"{8 + (number - GRAYS) * 10:02x}" * 2
    at = number - CUBE
    return "#" + "".join(f"{55 + 40 * part if part else 0:02x}" for part in (at // 36, at // 6 % 6, at % 6))


def change_style(style: Style, changes: Mapping[str, Any]) -> Style:
    """Return a style with some of its fields changed."""
    return style._replace(**changes)


def apply_codes(style: Style, parameters: str) -> Style:
    """Return a style after the numbers of one escape sequence."""
    codes = [int(code or 0) for code in re.split("[;:]", parameters)]
    while codes:
        code = codes.pop(0)
        if code == 0:
            style = Style()
        elif code in EXTENDED and codes:
            is_indexed = codes.pop(0) == INDEXED
            used = [codes.pop(0) for _ in range(min(len(codes), 1 if is_indexed else 3))]
            color = find_color(used[0]) if is_indexed else "#" + "".join(f"{part:02x}" for part in used)
            style = change_style(style, {EXTENDED[code]: color})
        else:
            style = change_style(style, CODES.get(code, {}))
    return style


def parse_screen(text: str) -> list[list[Cell]]:
    """Return the cells of each row. A style goes on to the next row until it changes."""
    style, rows = Style(), list[list[Cell]]()
    for line in text.rstrip("\n").split("\n"):
        cells: list[Cell] = []
        place = column = 0
        for sequence in [*_SEQUENCE.finditer(line), None]:
            for character in line[place : sequence.start() if sequence else len(line)]:
                cells.append(Cell(column, character, style))
                column += 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if sequence:
                place = sequence.end()
                style = style if sequence[1] is None else apply_codes(style, sequence[1])
        rows.append(cells)
    return rows


def draw_row(cells: list[Cell], top: float) -> Iterator[str]:
    """Yield the elements of one row."""
    for style, group in groupby(cells, key=lambda cell: cell.style):
        run = list(group)
        text = "".join(cell.text for cell in run)
        x, width = MARGIN + run[0].column * CELL_WIDTH, len(text) * CELL_WIDTH
        color, background = style.color or FOREGROUND, style.background
        if style.is_reversed:
            color, background = background or BACKGROUND, color
        if background:
            yield f'<rect x="{x:.1f}" y="{top:g}" width="{width:.1f}" height="{CELL_HEIGHT}" fill="{background}"/>'
        if text.strip():
            shown = text.rstrip()
            yield (
                f'<text x="{x:.1f}" y="{top + 13:g}" fill="{color}" textLength="{len(shown) * CELL_WIDTH:.1f}"'
                f"{write_attributes(style)}>{escape(shown)}</text>"
            )


def write_attributes(style: Style) -> str:
    """Return the style of an element without its colours; as CSS, which comes before that of the whole picture."""
    parts = (
        (style.is_bold, "font-weight:700"),
        (style.is_faint, "opacity:0.65"),
        (style.is_italic, "font-style:italic"),
        (style.is_underlined, "text-decoration:underline"),
    )
    css = ";".join(text for applies, text in parts if applies)
    return f' style="{css}"' if css else ""


def draw_screen(text: str, columns: int, title: str, description: str) -> str:
    """Return the picture of a captured screen. It loads nothing, and brings its own dark background."""
    rows = parse_screen(text)
    width, height = round(columns * CELL_WIDTH + 2 * MARGIN), BAR + len(rows) * CELL_HEIGHT + MARGIN
    dots = [
        f'<circle cx="{20 + 18 * at}" cy="17" r="5" fill="{color}"/>'
        for at, color in enumerate(("#ff7b72", "#e3b341", "#7ee787"))
    ]
    lines = [element for at, cells in enumerate(rows) for element in draw_row(cells, BAR + at * CELL_HEIGHT)]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(description)}</desc>',
        "<style>text { font: 14px ui-monospace, Menlo, Consolas, monospace; white-space: pre }</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}" stroke="#3d444d"/>',
        *dots,
        f'<text x="{width / 2:g}" y="22" fill="#8b949e" text-anchor="middle">{escape(title)}</text>',
        *lines,
        "</svg>\n",
    )
    return "\n".join(parts)
