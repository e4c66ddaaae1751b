"""Draw the events of a real run with one tool call as a tree.

The run, and the order of its events, are those that the tests compare with docs/concepts/events.md.
"""

import asyncio
import re
from typing import NamedTuple

from scripts.pictures.svg_page import draw_box, draw_line, draw_page, draw_text
from tests.docs.event_order import draw, tool_turn

ROW, INDENT, LEFT, TOP, WIDTH, NOTES = 28, 34, 28, 70, 700, 400

MEANINGS = {
    "session_opened": "the log was read",
    "run_started": "stored in one append with the prompt",
    "message_added (user)": "the prompt: accepted once it is stored",
    "turn_started": "the model is about to be asked",
    "model_requested": "model, settings, hash of the prompt",
    "tool_call_delta …": "pieces of the call, as they arrive",
    "text_delta …": "pieces of the text, as they arrive",
    "message_added (assistant)": "the reply, before any of its calls",
    "tool_started (weather)": "the intent, before the effect",
    "tool_finished (weather: ok)": "the one result of the call",
    "turn_ended": "all calls of the reply have results",
    "run_ended (done)": "the outcome",
}
"""What an event says, for the right half of the picture."""


class TreeLine(NamedTuple):
    """An event of the tree."""

    depth: int
    name: str
    is_stored: bool


def parse_tree(text: str) -> list[TreeLine]:
    """Return the lines of a tree that `tests.docs.event_order.draw` has drawn."""
    lines: list[TreeLine] = []
    for line in text.splitlines():
        margin = re.match(r"[│├└─ ]*", line)
        name = line[margin.end() if margin else 0 :]
        lines.append(TreeLine((margin.end() if margin else 0) // 3, name.removesuffix(" *"), name.endswith(" *")))
    return lines


def draw_event(lines: list[TreeLine], at: int) -> list[str]:
    """Return one event with its branch, its mark and its meaning."""
    line = lines[at]
    x, y = LEFT + line.depth * INDENT, TOP + at * ROW
    width = 30 + 7.9 * len(line.name)
    parts: list[str] = []
    if line.depth:
        above = max(place for place in range(at) if lines[place].depth < line.depth)
        parts.append(draw_line(x - INDENT + 14, TOP + above * ROW + 22, x - INDENT + 14, y + 11))
        parts.append(draw_line(x - INDENT + 14, y + 11, x, y + 11))
    parts.append(draw_box(x, y, width, 22, "box" if line.is_stored else "faint"))
    mark = "dot" if line.is_stored else "ring"
    parts.append(f'<circle cx="{x + 12}" cy="{y + 11}" r="4" class="{mark}"/>')
    parts.append(draw_text(x + 22, y + 15, line.name, "mono"))
    parts.append(draw_text(NOTES, y + 15, MEANINGS[line.name], "note"))
    return parts


def draw_picture() -> str:
    """Return the picture of the tree as SVG."""
    lines = parse_tree(draw(asyncio.run(tool_turn())))
    body = [
        draw_text(LEFT, 32, "The events of a run with one tool call", "head"),
        f'<circle cx="{LEFT + 5}" cy="49" r="4" class="dot"/>',
        draw_text(LEFT + 16, 53, "stored in the log, then shown", "note"),
        f'<circle cx="{LEFT + 225}" cy="49" r="4" class="ring"/>',
        draw_text(LEFT + 236, 53, "shown, not stored", "note"),
    ]
    for at in range(len(lines)):
        body += draw_event(lines, at)
    told = ", ".join(f"{line.name}{' (stored)' if line.is_stored else ''}" for line in lines)
    return draw_page(WIDTH, TOP + len(lines) * ROW + 14, "The event tree", f"From top to bottom: {told}.", body)
