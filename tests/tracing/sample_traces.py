"""Traces with everything in them, made of entries at fixed times: for tests of what is shown, and for pictures."""

from collections.abc import Iterator, Sequence
from typing import Any

from perdure import Message, Status, StopReason, Text, Thinking, ToolCall, ToolResult, Usage, user
from perdure.events import (
    Compacted,
    Entry,
    ErrorRaised,
    Event,
    FailedOver,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SessionOpened,
    SkillLoaded,
    SubagentStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolsChanged,
    ToolStarted,
    ViewChanged,
)
from perdure.models import Price
from perdure.tracing import Trace, Tracer

START = 1_750_000_000.0
PRICE = (3.0, 15.0, 0.3, 3.75)
PRICES = Price(input_usd=3.0, output_usd=15.0, cache_read_usd=0.3, cache_write_usd=3.75)


class Script:
    """Writes entries with a clock that moves when it is told to."""

    def __init__(self, session_id: str = "0197d2c4ab12") -> None:
        self.entries: list[Entry] = []
        self.now = START
        self.session_id = session_id
        self.usage = Usage()

    def add(self, event: Event, seconds: float = 0.0) -> None:
        self.now += seconds
        seq = len([each for each in self.entries if each.seq]) + 1 if type(event).durable else 0
        self.entries.append(Entry(seq, round(self.now, 4), event))

    def begin(self, run_id: str, prompt: str, path: str = "", agent: str = "engineer") -> None:
        if not path:
            self.add(SessionOpened(self.session_id, 0, run_id=run_id))
        self.add(RunStarted(agent, run_id=run_id, path=path))
        self.add(MessageAdded(user(prompt), run_id=run_id, path=path))

    def turn(self, run_id: str, number: int, parts: Sequence[Any], usage: Usage, **more: Any) -> None:
        """A request and its reply: `wait` seconds to the first word, `took` seconds for the rest."""
        path = more.get("path", "")
        asked = ModelRequested(
            number,
            model=more.get("model", "claude-sonnet-5"),
            provider="anthropic",
            settings={"temperature": 0.2},
            messages=more.get("messages", 2 * number - 1),
            estimated_tokens=usage.input_tokens,
            price_usd=PRICE,
            prefix="a-b",
            run_id=run_id,
            path=path,
        )
        self.add(asked, 0.02)
        for each in more.get("between", ()):
            self.add(each, 0.4)
        self.add(TextDelta("…", run_id=run_id, path=path), more.get("wait", 0.7))
        self.usage += usage
        calls = any(isinstance(part, ToolCall) for part in parts)
        stop = StopReason.TOOL_USE if calls else StopReason.STOP
        reply = Message("assistant", tuple(parts), provider="anthropic", model=asked.model, stop=stop, usage=usage)
        self.add(MessageAdded(reply, run_id=run_id, path=path), more.get("took", 1.6))

    def result(self, run_id: str, call_id: str, name: str, text: str, took: float, **more: Any) -> None:
        path, status = more.get("path", ""), more.get("status", Status.OK)
        self.add(
            ToolStarted(call_id, name, more.get("effect", "read"), f"{run_id}/{call_id}", run_id=run_id, path=path)
        )
        for each in more.get("between", ()):
            self.add(each, took / 4)
        result = ToolResult(call_id, name, (Text(text),), status)
        self.add(ToolFinished(call_id, name, result, took, run_id=run_id, path=path), took)

    def end(self, run_id: str, status: str, usage: Usage, turns: int, path: str = "") -> None:
        cost = PRICES.cost_usd(usage)
        self.add(RunEnded(status, usage=usage, turns=turns, cost_usd=cost, run_id=run_id, path=path), 0.01)

    def live(self) -> Trace:
        """What a tracer has collected of it."""
        tracer = Tracer()
        for entry in self.entries:
            tracer.collect_event(entry)
        return tracer.trace

    def stored(self) -> Trace:
        """What the log has of it."""
        return Trace.from_log([each for each in self.entries if each.seq], self.session_id)


def coding_session(*, quick: bool = False) -> Script:
    """A run that fixes a test: a retry, a failover, a subagent, a denied call, progress, a compaction."""
    script = Script("0197d2c4cd34" if quick else "0197d2c4ab12")
    run = "r1"
    script.begin(run, "The test of the parser fails since yesterday. Find out why, and fix it.")
    script.add(SkillLoaded("debugging", "model", run_id=run))
    call = ToolCall("c1", "bash", '{"command": "pytest -q tests/test_parser.py"}')
    script.turn(
        run,
        1,
        [Thinking("First see how it fails."), Text("I'll run the test first."), call],
        Usage(5_210, 96, 0, 5_100, 24),
        wait=0.9,
        between=[RetryScheduled(1, 4, 0.4, "RateLimited", "429: too many requests", run_id=run)],
    )
    progress = [ToolProgress("c1", "bash", {"lines": lines}, run_id=run) for lines in (4, 19, 42)]
    failing = (
        "FAILED tests/test_parser.py::test_nested_lists - IndexError: list index out of range\n1 failed, 41 passed"
    )
    script.result(run, "c1", "bash", failing, 2.4, effect="at_most_once", status=Status.ERROR, between=progress)
    one, two = ToolCall("c2", "read", '{"path": "src/parser.py"}'), ToolCall("c3", "investigate", '{"task": "git log"}')
    script.turn(run, 2, [Text("Two things at once."), one, two], Usage(5_480, 143, 5_210, 270), wait=0.5)
    script.result(run, "c2", "read", "def parse(tokens):\n    stack = []\n    …" * 12, 0.05)
    script.add(ToolStarted("c3", "investigate", "idempotent", "k", run_id=run))
    script.add(SubagentStarted("c3", "historian", "git log", "historian", run_id=run))
    script.begin("r1/c3", "Which commit touched src/parser.py last?", "historian", "historian")
    log = ToolCall("d1", "git_log", '{"path": "src/parser.py", "limit": 5}')
    script.turn("r1/c3", 1, [log], Usage(1_120, 38), path="historian", model="claude-haiku-5", wait=0.3, took=0.6)
    script.result("r1/c3", "d1", "git_log", "9f3c2ab Flatten the token stack (Tue)", 0.08, path="historian")
    said = [Text("Commit 9f3c2ab flattened the stack on Tuesday.")]
    script.turn("r1/c3", 2, said, Usage(1_240, 41, 1_120), path="historian", model="claude-haiku-5", wait=0.2, took=0.5)
    script.end("r1/c3", "done", Usage(2_360, 79, 1_120), 2, "historian")
    script.add(
        ToolFinished(
            "c3", "investigate", ToolResult("c3", "investigate", (Text("Commit 9f3c2ab did it."),)), 1.9, run_id=run
        )
    )
    if not quick:
        script.add(ToolsChanged(("git_show",), run_id=run))
        script.add(ViewChanged("tools", run_id=run))
        call = ToolCall("c4", "write", '{"path": "/etc/hosts", "text": "…"}')
        script.turn(run, 3, [Text("Let me note that."), call], Usage(9_870, 118, 0, 9_800), messages=6)
        denied = PermissionDecided(
            "c4", "write", "write", "/etc/hosts", "h", False, "outside of the project", run_id=run
        )
        script.add(denied, 1.2)
        result = ToolResult("c4", "write", (Text("denied: outside of the project"),), Status.DENIED)
        script.add(ToolFinished("c4", "write", result, run_id=run))
    call = ToolCall("c5", "edit", '{"path": "src/parser.py", "old": "stack[-2]", "new": "stack[-1]"}')
    between: list[Event] = (
        []
        if quick
        else [
            ErrorRaised("ProviderDown", "503 overloaded", "model", run_id=run),
            FailedOver("claude-sonnet-5", "claude-opus-5", "ProviderDown", "503 overloaded", run_id=run),
        ]
    )
    number = 3 if quick else 4
    script.turn(run, number, [Text("The index is off by one."), call], Usage(10_240, 171, 9_870, 370), between=between)
    script.result(run, "c5", "edit", "1 replacement", 0.03, effect="at_most_once")
    if not quick:
        summary = user("Summary: the parser indexed one level too deep; fixed in src/parser.py.", origin="summary")
        script.add(Compacted(summary, 8, 2_100, run_id=run), 1.4)
        script.add(ViewChanged("compaction", run_id=run))
    call = ToolCall("c6", "bash", '{"command": "pytest -q tests/test_parser.py"}')
    script.turn(run, number + 1, [call], Usage(3_020, 61, 0 if not quick else 2_900, 3_000), messages=3, wait=0.4)
    script.result(run, "c6", "bash", "42 passed in 0.61s", 1.7, effect="at_most_once")
    said = [Text("Fixed: `parse` looked one level too deep in the stack since commit 9f3c2ab. All 42 tests pass.")]
    script.turn(run, number + 2, said, Usage(3_110, 84, 3_020, 90), messages=5, took=1.1)
    script.end(run, "done", script.usage, number + 2)
    return script


def long_session(turns: int) -> Script:
    """A run of many turns with one call each."""
    script, run = Script("long"), "r1"
    script.begin(run, f"Work through all {turns} items.")
    for number, usage in enumerate(_usages(turns), 1):
        call = ToolCall(f"c{number}", "lookup", f'{{"item": {number}}}')
        script.turn(run, number, [Text(f"Item {number} next. " * 6), call], usage, wait=0.3, took=0.4)
        script.result(run, f"c{number}", "lookup", f"item {number}: " + "some content of it, " * 20, 0.1)
    script.end(run, "done", script.usage, turns)
    return script


def _usages(turns: int) -> Iterator[Usage]:
    known = 0
    for number in range(1, turns + 1):
        size = 2_000 + (number % 250) * 180
        cached = min(known, size)
        yield Usage(size, 40 + number % 90, cached, size - cached)
        known = size
