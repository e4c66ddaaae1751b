"""A trace as a web page: waterfall, messages, calls, tokens, cost, context, prompt cache, and a second trace beside it.

The page is self-contained and requests nothing: its policy allows its own script and style alone, by their hashes. The
script gets the trace as JSON in which no character can end the element around it, and shows it as text alone.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from perdure._core.values.jsonable import to_jsonable
from perdure._core.values.message import Message, Text, Thinking, ToolCall, Usage, parts_to_text
from perdure._tracing.collect.entry import RawRequest, RawResponseHead, RawResponseLine

from .curl import to_curl
from .page_parts import encode_for_script, fill_template, hash_source, read_theme
from .tree import ContextItem, TracedRun, TracedToolCall, TracedTurn, TraceNotice

if TYPE_CHECKING:
    from .trace import Trace

PageText: TypeAlias = str
"""The text of a web page."""

MAX_TEXT: Final = 50_000
"""Characters of one message, argument or result that a page shows."""
MAX_TEXT_WHEN_LARGE: Final = 2_000
"""The same, for a trace with more than `LARGE` characters."""
LARGE: Final = 20_000_000
MAX_RAW_REQUESTS: Final = 200
"""Raw requests that a page shows: the last ones."""
MAX_RAW_LINES: Final = 200
"""Lines of one raw response that a page shows: the first ones."""

_FOLDER: Final = Path(__file__).parent / "page"


def build_trace_page(trace: "Trace", compare: "Trace | None" = None) -> PageText:
    """Return a trace as a web page; with another trace, the two are shown side by side."""
    sides = [_PageData(each).build() for each in (trace, compare) if each is not None]
    script, style = _read_part("page.js"), _read_part("page.css")
    parts = {
        "SCRIPT_HASH": hash_source(script),
        "STYLE_HASH": hash_source(style),
        "STYLE": style,
        "DATA": encode_for_script({"sides": sides}),
        "SCRIPT": script,
    }
    return fill_template(_read_part("page.html"), parts)


@cache
def _read_part(name: str) -> str:
    text = (_FOLDER / name).read_text("utf-8")
    return read_theme() + text if name.endswith(".css") else text


class _PageData:
    """Turns a trace into the data of a page; times are relative to its first entry."""

    def __init__(self, trace: "Trace") -> None:
        self._trace = trace
        self._start = trace.started_at
        self._max_text = MAX_TEXT if _count_characters(trace.runs) <= LARGE else MAX_TEXT_WHEN_LARGE

    def build(self) -> dict[str, Any]:
        trace = self._trace
        systems = {(step.run_id, step.turn): len(step.system) for step in trace.disclosure() if step.system}
        return {
            "meta": {
                **msgspec.to_builtins(trace.meta),
                "session_id": trace.meta.session_id,
                "system": self._cut(trace.meta.system),
                "tools": [{"name": each.name, "description": each.description} for each in trace.meta.tools],
            },
            "started_at": self._start,
            "missing": trace.missing,
            "runs": [self._run(each, systems) for each in trace.runs],
            "raw": self._raw(),
        }

    def _at(self, t: float) -> float:
        return round(max(t - self._start, 0.0), 4) if t else 0.0

    def _cut(self, text: str) -> str:
        more = len(text) - self._max_text
        return text if more <= 0 else f"{text[: self._max_text]}… ({more:,} more characters)"

    def _run(self, run: TracedRun, systems: Mapping[tuple[str, int], int]) -> dict[str, Any]:
        return {
            "id": run.run_id,
            "path": run.path,
            "agent": run.agent,
            "engine": run.engine,
            "t0": self._at(run.started_at),
            "t1": self._at(run.ended_at),
            "status": run.status,
            "reason": run.reason,
            "error": self._cut(run.error),
            "usage": _usage(run.usage),
            "cost": run.cost_usd,
            "prompt": self._cut(run.prompt),
            "notices": [self._notice(each) for each in run.notices],
            "turns": [self._turn(each, systems) for each in run.turns],
            "background": [self._run(each, systems) for each in run.background],
        }

    def _turn(self, turn: TracedTurn, systems: Mapping[tuple[str, int], int]) -> dict[str, Any]:
        reply = turn.reply
        return {
            "n": turn.turn,
            "path": turn.path,
            "aside": turn.is_aside,
            "model": turn.model,
            "provider": turn.provider,
            "settings": to_jsonable(turn.settings),
            "messages": turn.messages,
            "attempts": turn.attempts,
            "retries": turn.retries,
            "failovers": turn.failovers,
            "t0": self._at(turn.requested_at),
            "tf": self._at(turn.first_delta_at),
            "tr": self._at(turn.replied_at),
            "t1": self._at(turn.ended_at or turn.requested_at),
            "stop": "" if reply is None else str(reply.stop or ""),
            "reply": [] if reply is None else self._parts(reply),
            "usage": _usage(turn.usage),
            "ctx": turn.context_tokens,
            "cost": turn.cost_usd,
            "changes": turn.changes,
            "added": turn.added_tools,
            "removed": turn.removed_tools,
            "system": systems.get((turn.run_id, turn.turn), 0),
            "entered": [self._item(each) for each in turn.entered],
            "notices": [self._notice(each) for each in turn.notices],
            "calls": [self._call(each, systems) for each in turn.calls],
        }

    def _call(self, call: TracedToolCall, systems: Mapping[tuple[str, int], int]) -> dict[str, Any]:
        return {
            "id": call.call_id,
            "name": call.name,
            "args": self._cut(call.arguments),
            "status": call.status,
            "result": self._cut(call.result),
            "effect": call.effect,
            "permission": call.permission,
            "attempts": call.attempts,
            "t0": self._at(call.started_at),
            "t1": self._at(call.finished_at),
            "dur": round(call.duration_seconds, 4),
            "progress": to_jsonable(call.progress),
            "progress_count": call.progress_count,
            "runs": [self._run(each, systems) for each in call.runs],
        }

    def _item(self, item: ContextItem) -> dict[str, Any]:
        """Return what entered the context; the text of a reply or result is elsewhere on the page."""
        text = "" if item.call_id or item.reason == "reply" else self._cut(item.text)
        if item.reason == "reply":
            text = self._cut(item.text)[:200]
        return {
            "t": self._at(item.t),
            "why": item.reason,
            "role": item.role,
            "text": text,
            "n": item.characters,
            "call": item.call_id,
        }

    def _notice(self, notice: TraceNotice) -> dict[str, Any]:
        return {"t": self._at(notice.t), "kind": notice.kind, "text": self._cut(notice.text), "bad": notice.is_problem}

    def _parts(self, message: Message) -> list[dict[str, str]]:
        return [self._part(each) for each in message.parts]

    def _part(self, part: Any) -> dict[str, str]:
        match part:
            case Text(text=text):
                return {"type": "text", "text": self._cut(text)}
            case Thinking(text=text):
                return {"type": "thinking", "text": self._cut(text)}
            case ToolCall(name=name, arguments=arguments):
                return {"type": "tool_call", "name": name, "arguments": self._cut(arguments)}
            case _:
                return {"type": type(part).__name__.lower(), "text": self._cut(parts_to_text((part,)))}

    def _raw(self) -> list[dict[str, Any]]:
        """Return the last raw requests, each with its status and the first lines of its response."""
        found: dict[int, dict[str, Any]] = {}
        for entry in self._trace.entries:
            match entry.data:
                case RawRequest():
                    found[entry.data.number] = self._request(entry.data, entry.t)
                case RawResponseHead(number=number, status=status) if number in found:
                    found[number]["status"] = status
                case RawResponseLine(number=number, line=line) if number in found:
                    each = found[number]
                    each["count"] += 1
                    if len(each["lines"]) < MAX_RAW_LINES:
                        each["lines"].append(self._cut(line))
                case _:
                    pass
        return list(found.values())[-MAX_RAW_REQUESTS:]

    def _request(self, request: RawRequest, t: float) -> dict[str, Any]:
        shown = {"method": request.method, "url": request.url, "curl": self._cut(to_curl(request))}
        return {**shown, "t": self._at(t), "status": 0, "lines": [], "count": 0}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cache_read_tokens,
        "written": usage.cache_write_tokens,
        "thinking": usage.reasoning_tokens,
        "precision": usage.precision,
    }


def _count_characters(runs: Sequence[TracedRun]) -> int:
    """Return the number of characters of the messages, arguments and results in a tree."""
    total = 0
    for run in runs:
        for turn in run.turns:
            total += sum([item.characters for item in turn.entered]) + sum([len(call.arguments) for call in turn.calls])
            total += sum([_count_characters(call.runs) for call in turn.calls])
        total += _count_characters(run.background)
    return total
