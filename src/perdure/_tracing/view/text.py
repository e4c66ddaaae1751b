"""Traces as text: the timeline, the trajectory, the disclosure timeline, and the tree of `perdure trace`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure._core.values.message import Usage
from perdure._tracing.collect.entry import TraceEntry, TraceSource, encode_data

from .timelines import DisclosureStep, TrajectoryStep
from .tree import TracedRun, TracedToolCall, TracedTurn, TraceNotice

if TYPE_CHECKING:
    from .trace import Trace

_HOUR = 3600
_MINUTE = 60


def format_timeline(
    entries: Sequence[TraceEntry], *, max_value_length: int = 80, sources: Sequence[TraceSource] = ()
) -> str:
    """Return the timeline of a trace as text: a line for each entry, with time, source, kind and shortened fields."""
    return "".join([_format_entry(each, max_value_length) for each in entries if not sources or each.source in sources])


def _format_entry(entry: TraceEntry, most: int) -> str:
    fields = msgspec.json.decode(encode_data(entry.data))
    fields.pop("kind", None)
    told = " ".join([f"{name}={cut_line(_to_value(each), most)}" for name, each in fields.items()])
    return f"{entry.dt:10.3f} {entry.source:5} {entry.label} {told}".rstrip() + "\n"


def _to_value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def cut_line(text: str, most: int) -> str:
    """Return a text as one line, cut to at most `most` characters."""
    line = " ".join(text[: most * 4 + 4].split())
    return line if len(line) <= most else f"{line[: max(most - 1, 0)]}…"


def format_seconds(seconds: float) -> str:
    """Return a duration as text, such as `1.24 s` or `3 min 05 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.2f} s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min {int(seconds % _MINUTE):02} s"
    return f"{int(seconds // _HOUR)} h {int(seconds % _HOUR // _MINUTE):02} min"


def format_usd(cost: float | None) -> str:
    """Return a cost as text, such as `$0.0042`; empty if it is not known."""
    if cost is None:
        return ""
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}"


def format_usage(usage: Usage) -> str:
    """Return token counts as text, such as `1,200 in (1,000 cached), 80 out`; empty if there are none."""
    if not usage.total_tokens:
        return ""
    cached = f" ({usage.cache_read_tokens:,} cached)" if usage.cache_read_tokens else ""
    mark = "" if usage.precision == "exact" else f" {usage.precision}"
    return f"{usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out{mark}"


# -- the trajectory and the disclosure timeline ------------------------------------------------------------------------


def format_trajectory(steps: Sequence[TrajectoryStep]) -> str:
    """Return a trajectory as text: each turn with its reply and the results of its calls."""
    lines: list[str] = []
    for step in steps:
        told = _join(format_seconds(step.duration_seconds), format_usage(step.usage), format_usd(step.cost_usd))
        lines.append(f"{_at_path(step.path)}turn {step.turn} ({told})")
        lines += [f"  [{item.reason}] {cut_line(item.text, 100)}" for item in step.injected]
        if step.assistant is not None and step.assistant.text:
            lines.append(f"  {cut_line(step.assistant.text, 100)}")
        for tool in step.tools:
            lines.append(f"  {tool.name}({cut_line(tool.arguments, 60)}) {format_seconds(tool.duration_seconds)}")
            lines.append(f"    {tool.status}: {cut_line(tool.result, 90)}")
    return "\n".join(lines) + "\n" if lines else ""


def format_disclosure(steps: Sequence[DisclosureStep]) -> str:
    """Return a disclosure timeline as text: what was added to the model's context with each request."""
    lines: list[str] = []
    for step in steps:
        told = _join(f"{step.messages} messages ({step.messages_delta:+})", f"{step.tokens:,} tokens")
        lines.append(f"{step.dt:10.3f} {_at_path(step.path)}turn {step.turn}: {told}")
        if step.system is not None:
            lines.append(f"{'':11}  system: {len(step.system):,} characters")
        if step.added_tools or step.removed_tools:
            names = [*[f"+{name}" for name in step.added_tools], *[f"-{name}" for name in step.removed_tools]]
            lines.append(f"{'':11}  tools: {' '.join(names)}")
        lines += [f"{'':11}  changed: {cause}" for cause in step.changes]
        lines += [f"{'':11}  + {each.reason}: {each.characters:,} characters" for each in step.entered]
    return "\n".join(lines) + "\n" if lines else ""


def _at_path(path: str) -> str:
    return f"{path}: " if path else ""


def _join(*texts: str) -> str:
    return " · ".join([each for each in texts if each])


# -- the tree ----------------------------------------------------------------------------------------------------------


def format_tree(trace: "Trace", *, width: int = 100) -> str:
    """Return a trace as a tree of runs, turns and calls, in lines of at most this width."""
    meta = trace.meta
    model = ":".join(filter(None, (meta.provider, meta.model)))
    lines = [f"session {meta.session_id or '?'}" + (f" · {model}" if model else "")]
    if trace.missing:
        lines.append(f"! {trace.missing:,} entries are missing: the trace reached its limit")
    for place, run in enumerate(trace.runs):
        lines += _draw(_run_line(run), list(_run_children(run)), is_last=place == len(trace.runs) - 1, prefix="")
    return "\n".join([_cut(line, width) for line in lines]) + "\n"


_Node = tuple[str, "list[_Node]"]


def _draw(line: str, children: "list[_Node]", *, is_last: bool, prefix: str) -> Iterator[str]:
    yield f"{prefix}{'└─ ' if is_last else '├─ '}{line}"
    below = prefix + ("   " if is_last else "│  ")
    for place, (text, under) in enumerate(children):
        yield from _draw(text, under, is_last=place == len(children) - 1, prefix=below)


def _run_line(run: TracedRun) -> str:
    name = run.path or run.agent or "run"
    ended = run.status + (f" ({run.reason})" if run.reason and run.reason != run.status else "")
    error = f" ✗ {cut_line(run.error, 200)}" if run.error else ""
    told = _join(ended, format_seconds(run.duration_seconds), format_usage(run.usage), format_usd(run.cost_usd))
    prompt = f' "{cut_line(run.prompt, 40)}"' if run.prompt else ""
    return f"{cut_line(name, 30)}{prompt} · {told}{error}"


def _run_children(run: TracedRun) -> "Iterator[_Node]":
    yield from map(_notice_node, run.notices)
    for turn in run.turns:
        yield _turn_line(turn), list(_turn_children(turn))
    for each in run.background:
        yield _run_line(each), list(_run_children(each))


def _turn_line(turn: TracedTurn) -> str:
    reply = "" if turn.reply is None else cut_line(turn.reply.text, 60)
    waited = turn.first_delta_at - turn.requested_at if turn.first_delta_at else 0.0
    took = format_seconds(max(turn.replied_at - turn.requested_at, 0.0)) if turn.replied_at else "no reply"
    first = f"first after {format_seconds(waited)}" if waited > 0 else ""
    tries = f"{turn.attempts} attempts" if turn.attempts > 1 else ""
    kind = "aside" if turn.is_aside else f"turn {turn.turn}"
    told = _join(took, first, tries, format_usage(turn.usage), format_usd(turn.cost_usd))
    return f"{kind} · {told}" + (f' · "{reply}"' if reply else "")


def _turn_children(turn: TracedTurn) -> "Iterator[_Node]":
    yield from map(_notice_node, turn.notices)
    for call in turn.calls:
        below: list[_Node] = [(_run_line(run), list(_run_children(run))) for run in call.runs]
        if call.progress_count:
            last = cut_line(_to_value(call.progress[-1]), 60)
            below.insert(0, (f"progress: {call.progress_count} reports, the last {last}", []))
        yield _call_line(call), below


def _call_line(call: TracedToolCall) -> str:
    mark = {"ok": "✓", "open": "…"}.get(call.status, "✗")
    took = format_seconds(call.duration_seconds) if call.finished_at else ""
    result = f" → {cut_line(call.result, 60)}" if call.result else ""
    status = "" if call.status in {"ok", "open"} else f" {call.status}"
    called = f"{mark} {cut_line(call.name, 40)} {cut_line(call.arguments, 50)}{status}"
    return f"{_join(called, took, call.permission)}{result}"


def _notice_node(notice: TraceNotice) -> "_Node":
    mark = "! " if notice.is_problem else "· "
    return f"{mark}{notice.kind}: {cut_line(notice.text, 160)}", []


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(width - 1, 1)]}…"
