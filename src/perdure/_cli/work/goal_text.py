"""Format goals as text for the terminal and as JSON, and map the status of a goal to an exit code."""

import sys
import time
from typing import TYPE_CHECKING, Final

from perdure._cli.terminal.output import line_width, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from perdure._work.goals.record import GoalRecord

EXIT_CODES: Final = {
    "achieved": 0,
    "errored": 1,
    "blocked": 2,
    "max_iterations": 3,
    "budget_limited": 4,
    "paused": 5,
    "running": 5,
}
"""The exit codes of `perdure goal start` and `resume`, by the status of the goal."""
_STATUS_WIDTH: Final = 14


def encode_goal(record: "GoalRecord") -> str:
    """Return a goal's record as a line of JSON, for `--json`."""
    import msgspec

    data = {
        **msgspec.to_builtins(record),
        "objective": record.objective,
        "scores": record.scores,
        "exit_code": EXIT_CODES[record.status],
    }
    return to_ascii_json(msgspec.json.encode(data)) + "\n"


def format_goal_row(record: "GoalRecord") -> str:
    """Return a goal as one line for `perdure goal list`."""
    from perdure._work.goals.plot import draw_sparkline

    done = f"{len(record.items) - len(record.open_items)}/{len(record.items)}"
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.updated_at))
    plot = draw_sparkline(record.scores)
    row = f"{record.goal_id}  {changed}  {record.status:{_STATUS_WIDTH}}  {done:>5}  {plot} {record.objective}"
    return to_one_line(row, line_width(sys.stdout)) + "\n"


def format_goal(record: "GoalRecord") -> str:
    """Return a goal as text of several lines: status, checklist with evidence, iterations and scores."""
    from perdure._work.goals.plot import draw_sparkline

    reason = f" ({record.reason})" if record.reason else ""
    lines = [f"{record.goal_id}: {record.status}{reason}", record.objective, ""]
    for item in record.items:
        state = "" if item.done or not item.progress else f" ({item.progress} %)"
        lines.append(f"[{'x' if item.done else ' '}] {item.id}. {item.title}{state}")
        lines += [f"       {each}" for each in item.evidence.splitlines()]
    if record.scores:
        lines += ["", f"scores  {draw_sparkline(record.scores)}  {' '.join([f'{each:.2f}' for each in record.scores])}"]
    cost = "" if record.cost_usd is None else f", ${record.cost_usd:.4f}"
    used = f"{record.usage.total_tokens:,} tokens{cost}, {record.seconds:.0f} s"
    lines += ["", f"{len(record.iterations)} iterations, {used}"]
    if record.branch:
        lines.append(f"branch {record.branch} in {record.workdir}")
    if record.summary:
        lines += ["", record.summary]
    return "\n".join(lines) + "\n"
