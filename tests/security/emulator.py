"""A terminal as a person sees it: the bytes of a command, drawn by an emulator, as rows."""

import pyte

TALL = 20_000
"""Rows of the emulator, so that nothing scrolls away before a test has looked at it."""


def draw_rows(text: str, columns: int, *, rows: int = TALL) -> list[str]:
    """Draw what was written to a terminal with so many columns; returns the rows up to the last that is not empty."""
    rows = min(rows, text.count("\n") * 4 + len(text) // max(columns - 1, 1) + 50)
    screen = pyte.Screen(columns, rows)
    pyte.Stream(screen).feed(text)
    drawn = [row.rstrip() for row in screen.display]
    while drawn and not drawn[-1]:
        drawn.pop()
    return drawn


def rows_of_question(drawn: list[str], which: int = 0) -> tuple[str, list[str], list[str]]:
    """The heading of a question, the rows that it announces, and what follows them."""
    heads = [place for place, row in enumerate(drawn) if row.startswith("Allow this call?")]
    head = heads[which]
    announced = drawn[head] if drawn[head].endswith(")") else drawn[head] + drawn[head + 1]
    count = int(announced.rsplit(", ", 1)[1].removesuffix(" rows)").replace(",", ""))
    first = head + (1 if announced == drawn[head] else 2)
    return announced, drawn[first : first + count], drawn[first + count :]
