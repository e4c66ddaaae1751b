"""The comparison as the tables of docs/performance.md: a row for each contestant, ratios to the hand-written one."""

from collections.abc import Sequence
from typing import NamedTuple

from bench.peers.comparison import ContestantFigures


class Column(NamedTuple):
    """A figure of every contestant."""

    key: str
    title: str
    unit: str
    scale: float = 1.0
    """By which a reading is multiplied for its unit."""
    has_ratio: bool = True


class ComparisonTable(NamedTuple):
    """Columns under one heading."""

    title: str
    text: str
    columns: Sequence[Column]


TABLES = (
    ComparisonTable(
        "Turns and runs over HTTP",
        "CPU time of the client; streamed and watched. *Tool turn*: one request, its streamed reply with one "
        "call, the call. *Run*: everything from the prompt to the outcome.",
        (
            Column("early_us", "tool turn, the 10th", "ms", 1e-3),
            Column("late_us", "tool turn, the 50th", "ms", 1e-3),
            Column("answer_us", "run with one answer", "ms", 1e-3),
            Column("tool_run_us", "run with one tool turn", "ms", 1e-3),
            Column("delta_us", "streamed word", "µs"),
            Column("crowd_s", "50 sessions of 5 tool turns at once", "s"),
        ),
    ),
    ComparisonTable(
        "Conversations that are kept",
        "A run with one tool turn in a new session: kept in memory, and on the disk. *Memory*: growth of the process "
        "for each session of one tool turn that is kept in memory.",
        (
            Column("kept_us", "run, in memory", "ms", 1e-3),
            Column("stored_us", "run, on the disk", "ms", 1e-3),
            Column("long_us", "the 50th run of a session, on the disk", "ms", 1e-3),
            Column("session_kib", "memory of a session", "KiB", has_ratio=False),
        ),
    ),
    ComparisonTable(
        "Starting",
        "CPU time of fresh processes. *Import*: over a bare interpreter. *First answer*: the whole process up to the "
        "end of its first run with one tool turn. *Packages*: all that an installation with this model and these "
        "stores has.",
        (
            Column("import_ms", "import", "ms", has_ratio=False),
            Column("first_ms", "first answer", "ms"),
            Column("distributions", "packages", "", has_ratio=False),
        ),
    ),
)


def write_quantity(value: float, unit: str) -> str:
    """Return a value with two or three digits that mean something."""
    digits = 0 if not unit or value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def write_cell(result: ContestantFigures, column: Column, hand: ContestantFigures | None) -> str:
    """Return a figure, and how many times that of the hand-written loop it is."""
    value = result.figures.get(column.key)
    if value is None:
        return "-"
    text = write_quantity(value * column.scale, column.unit)
    reference = hand.figures.get(column.key) if hand else None
    if column.key == "stored_us":
        text += f", {result.store_kind}"
    if not column.has_ratio or not reference or result is hand:
        return text
    return f"{text} ({write_quantity(value / reference, 'x')})"


def write_table(table: ComparisonTable, results: Sequence[ContestantFigures]) -> list[str]:
    """Return the lines of one table with its heading."""
    hand = next((result for result in results if result.peer.name == "by hand"), None)
    head = ["", *[column.title for column in table.columns]]
    lines = [f"### {table.title}", "", table.text, "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for result in results:
        cells = [write_cell(result, column, hand) for column in table.columns]
        lines.append(f"| {result.peer.name} | {' | '.join(cells)} |")
    return [*lines, ""]


def write_versions(results: Sequence[ContestantFigures], conditions: str) -> str:
    """Return the sentence that says what was compared, and where."""
    versions = ", ".join(f"{result.peer.name} {result.version}" for result in results if result.peer.name != "by hand")
    hand = [f"by hand with {result.version}" for result in results if result.peer.name == "by hand"]
    return f"{'; '.join([versions, *hand])}. {conditions}."


def write_tables(results: Sequence[ContestantFigures], conditions: str) -> str:
    """Return all tables, in Markdown."""
    lines = [line for table in TABLES for line in write_table(table, results)]
    return "\n".join([write_versions(results, conditions), "", *lines])
