"""Draw a run from the prompt to the outcome: who calls whom, and what is stored before the next step."""

from typing import NamedTuple

from scripts.pictures.svg_page import draw_box, draw_line, draw_page, draw_text

LANES = ("caller", "session", "loop", "model", "tool", "log")
WIDTH, LANE, LEFT, TOP, ROW = 800, 133, 62, 96, 32


class SequenceStep(NamedTuple):
    """An arrow from one lane to another, or a note at one lane."""

    source: str
    target: str
    """The same as the source for a note."""
    text: str
    is_answer: bool = False
    """Drawn dashed."""
    is_barrier: bool = False
    """The run waits until the disk has it."""


STEPS = (
    SequenceStep("caller", "session", 'run("…")'),
    SequenceStep("session", "session", "expand the prompt, take the lease, fold the log"),
    SequenceStep("session", "log", "run_started, message_added", is_barrier=True),
    SequenceStep("session", "loop", "Run"),
    SequenceStep("loop", "log", "model_requested"),
    SequenceStep("loop", "model", "Request"),
    SequenceStep("model", "loop", "deltas, to watchers", is_answer=True),
    SequenceStep("loop", "log", "message_added: the reply, before its calls"),
    SequenceStep("loop", "loop", "find the tool, validate, ask for permission"),
    SequenceStep("loop", "log", "tool_started: the intent", is_barrier=True),
    SequenceStep("loop", "tool", "call"),
    SequenceStep("tool", "loop", "result", is_answer=True),
    SequenceStep("loop", "log", "tool_finished"),
    SequenceStep("loop", "log", "model_requested"),
    SequenceStep("loop", "model", "Request"),
    SequenceStep("model", "loop", "deltas", is_answer=True),
    SequenceStep("loop", "log", "message_added: the answer"),
    SequenceStep("loop", "log", "run_ended", is_barrier=True),
    SequenceStep("loop", "session", "Outcome", is_answer=True),
    SequenceStep("session", "caller", "Outcome", is_answer=True),
)


def find_lane(name: str) -> int:
    """Return the horizontal place of a lane."""
    return LEFT + LANES.index(name) * LANE


def draw_arrow(step: SequenceStep, y: float) -> list[str]:
    """Return an arrow with its text, and a mark for a barrier."""
    start, end = find_lane(step.source), find_lane(step.target)
    way = 1 if end > start else -1
    kind = "strong" if step.is_barrier else "line dashed" if step.is_answer else "line"
    tip = f'<path d="M{end} {y} l{-9 * way} -4.5 v9 z" class="ink"/>'
    # At the source: a long arrow crosses other lanes, and its text is where it begins.
    x = start + 10 * way
    parts = [draw_line(start, y, end - 4 * way, y, kind), tip]
    parts.append(draw_text(x, y - 7, step.text, "note over", "start" if way > 0 else "end"))
    if step.is_barrier:
        parts.append(draw_text(end + 10, y + 4, "barrier", "note head"))
    return parts


def draw_note(step: SequenceStep, y: float) -> list[str]:
    """Return a box at a lane."""
    width = 20 + 6.6 * len(step.text)
    x = find_lane(step.source) - 12
    return [draw_box(x, y - 17, width, 24, "faint"), draw_text(x + 10, y - 1, step.text, "note")]


def draw_picture() -> str:
    """Return the picture of the sequence as SVG."""
    bottom = TOP + len(STEPS) * ROW
    body = [draw_text(24, 32, "One run, end to end", "head")]
    body.append(draw_text(190, 32, "a barrier: the run goes on once the disk has it", "note"))
    for lane in LANES:
        x = find_lane(lane)
        body.append(draw_line(x, 76, x, bottom - 8, "line dashed"))
        body += [draw_box(x - 42, 48, 84, 28), draw_text(x, 67, lane, "head", "middle")]
    for at, step in enumerate(STEPS):
        y = TOP + at * ROW + 16
        body += draw_note(step, y) if step.source == step.target else draw_arrow(step, y)
    told = "; ".join(f"{step.source} to {step.target}: {step.text}" for step in STEPS)
    return draw_page(WIDTH, bottom + 10, "One run, end to end", f"In order: {told}.", body)
