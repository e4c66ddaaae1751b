"""Random logs of a session, and all that a state has in it: for tests of ways to fold a log."""

from collections.abc import Iterator
from random import Random
from typing import Any

from perdure import Message, Status, Text, ToolCall, ToolResult, Usage, assistant, user
from perdure.engines import State
from perdure.events import (
    AnswerReviewed,
    Compacted,
    Custom,
    Event,
    InboxAdded,
    InboxResolved,
    LimitReached,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    PermissionDecided,
    QuestionAnswered,
    QuestionAsked,
    ReplyDiscarded,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionConfigured,
    SessionImported,
    SkillLoaded,
    SlotClosed,
    SlotOpened,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    Unknown,
    ValueKept,
    ViewChanged,
)


class RandomLog:
    """Makes the events of a log: most runs are usual ones, and anything else may happen in and between them."""

    def __init__(self, seed: object) -> None:
        self.chance = Random(str(seed))
        self._runs = 0
        self._calls = 0

    def make(self, runs: int, *, strangeness: float = 0.25, within: float = 0.3) -> list[Event]:
        """Make a log with about so many runs.

        `strangeness` is the share of runs in which something may be strange, and `within` how much is, in those.
        """
        events: list[Event] = []
        for _ in range(runs):
            is_strange = self.chance.random() < strangeness
            events += self._run(strangeness=within if is_strange else 0.0)
            if is_strange and self.chance.random() < 0.5:
                events.append(self._anything("", ""))
        return events

    def damage(self, events: list[Event]) -> list[Event]:
        """Lose, repeat and exchange some events, as no run does."""
        events = list(events)
        for _ in range(self.chance.randrange(1, 5)):
            one, other = (self.chance.randrange(len(events)) for _ in range(2))
            match self.chance.randrange(3):
                case 0:
                    del events[one]
                case 1:
                    events.insert(other, events[one])
                case _:
                    events[one], events[other] = events[other], events[one]
        return events

    def insert_anything(self, events: list[Event]) -> list[Event]:
        """Insert one event that is rare, about a call of the reply before it or about none, where no run has it."""
        place = self.chance.randrange(len(events) + 1)
        replies = [each for each in events[:place] if isinstance(each, MessageAdded) and each.message.tool_calls]
        calls = replies[-1].message.tool_calls if replies else ()
        call_id = self.chance.choice([call.call_id for call in calls] or ["call_0"])
        return [
            *events[:place],
            self._anything("run-1", self.chance.choice(("", "", "", "act:1")), call_id),
            *events[place:],
        ]

    def _maybe(self, share: float) -> bool:
        return self.chance.random() < share

    def _run(self, *, strangeness: float, path: str = "") -> Iterator[Event]:
        self._runs += 1
        run_id, turn = f"run-{self._runs}", 0
        input_id = f"input-{self.chance.randrange(9)}" if self._maybe(0.3) else ""
        yield RunStarted("agent", input_id=input_id, run_id=run_id, path=path)
        yield MessageAdded(user("Hello, 世界 “x” \n"), run_id=run_id, path=path)
        for turn in range(1, self.chance.randrange(1 if strangeness else 2, 5)):
            for attempt in range(1, self.chance.choice((1, 1, 1, 2)) + 1):
                price = self.chance.choice(((), (1.0, 2.0, None, None)))
                yield ModelRequested(turn, attempt, "model", price_usd=price, run_id=run_id, path=path)
            calls = self._call_ids() if self._maybe(0.6) else []
            if self._maybe(strangeness):
                yield self._anything(run_id, path)
            yield MessageAdded(self._reply(calls, strangeness), run_id=run_id, path=path)
            yield from self._results(calls, run_id, path, strangeness)
        if self._maybe(strangeness / 2):
            return  # the process died
        yield self._end(run_id, path, turn, strangeness)

    def _call_ids(self) -> list[str]:
        self._calls += 4
        return [f"call_{self._calls + number}" for number in range(self.chance.choice((1, 1, 1, 2, 3)))]

    def _usage(self, strangeness: float = 0.0) -> Usage | None:
        cost = self.chance.random() if self._maybe(strangeness / 2) else None
        usage = Usage(self.chance.randrange(99), self.chance.randrange(9), reported_usd=cost)
        return usage if self._maybe(0.9) else None

    def _reply(self, calls: list[str], strangeness: float) -> Message:
        parts: list[Text | ToolCall] = [Text("I think.")] if not calls or self._maybe(0.5) else []
        parts += [ToolCall(each, "act", '{"n": 1}') for each in calls]
        labels = ("untrusted",) if self._maybe(strangeness / 3) else ()
        reply = assistant(parts, usage=self._usage(strangeness))
        return Message(reply.role, reply.parts, usage=reply.usage, model="model", labels=labels)

    def _results(self, calls: list[str], run_id: str, path: str, strangeness: float) -> Iterator[Event]:
        for call_id in calls:
            if self._maybe(0.3):
                yield PermissionDecided(call_id, "act", "act", "x", "", allow=True, run_id=run_id, path=path)
            if self._maybe(0.9):
                yield ToolStarted(call_id, "act", "at_most_once", f"key-{call_id}", run_id=run_id, path=path)
        for call_id in self.chance.sample(calls, len(calls)):
            if self._maybe(strangeness / 3):
                yield from self._run(strangeness=strangeness, path=f"{path}/child" if path else f"act:{call_id}")
            if self._maybe(strangeness / 3):
                yield self._anything(run_id, path)
            if not self._maybe(strangeness / 6):
                yield ToolFinished(call_id, "act", self._result(call_id, strangeness), run_id=run_id, path=path)

    def _result(self, call_id: str, strangeness: float) -> ToolResult:
        labels = ("private",) if self._maybe(strangeness / 3) else ()
        preview = "long…" if self._maybe(strangeness / 3) else ""
        status = self.chance.choice((Status.OK, Status.ERROR))
        return ToolResult(call_id, "act", (Text("done ✓"),), status, summary="short", preview=preview, labels=labels)

    def _end(self, run_id: str, path: str, turns: int, strangeness: float) -> RunEnded:
        reason = self.chance.choice(("interrupted", "crash_loop", "x")) if self._maybe(strangeness) else ""
        status = self.chance.choice(("done", "failed", "parked")) if strangeness else "done"
        cost = self.chance.random() if self._maybe(0.9) else None
        usage = Usage(self.chance.choice((0, 7)))
        return RunEnded(status, reason, usage=usage, cost_usd=cost, turns=turns, run_id=run_id, path=path)

    def _anything(self, run_id: str, path: str, call_id: str = "") -> Event:
        """Return an event that is rare, with ids that others of the log may have."""
        call_id, some_id = call_id or f"call_{self._calls}", f"id-{self.chance.randrange(4)}"
        result = self._result(call_id, 0.5)
        names: dict[str, Any] = {"run_id": run_id, "path": path}
        return self.chance.choice(
            [
                AnswerReviewed("good", **names),
                Compacted(user("In short"), self.chance.randrange(4), usage=self._usage(), **names),
                Custom("note", {"a": 1}, **names),
                InboxAdded(some_id, "tag", "please", **names),
                InboxResolved(some_id, "yes", **names),
                LimitReached("max_tool_calls", **names),
                MessageAdded(user("Stop."), **names),
                MessageAdded(Message("tool", (result,)), **names),
                MessageAdded(assistant([ToolCall("twice", "act"), ToolCall("twice", "act")]), **names),
                ModelReplied(2, assistant("Aside.", usage=self._usage()), **names),
                ModelRequested(2, 1, "model", estimated_tokens=5, aside=True, **names),
                ModelRequested(1, 1, "model", estimated_tokens=5, **names),
                PermissionDecided(call_id, "act", "act", "x", "", allow=True, scope="session", **names),
                PermissionDecided(some_id, "act", "act", "x", "", allow=True, **names),
                QuestionAnswered(some_id, {"yes": True}, **names),
                QuestionAsked(some_id, "slot", **names),
                ReplyDiscarded(1, "cut off", assistant("Half", usage=self._usage()), **names),
                RunEnded("parked", "crash_loop", **names),
                RunResumed(**names),
                RunStarted("agent", input_id="input-1", private=True, run_id="other", path=f"{path}/own".strip("/")),
                RunWaiting((some_id,), **names),
                SessionConfigured({"role": some_id}, **names),
                SessionImported("digest", **names),
                SkillLoaded(some_id, **names),
                SlotClosed(some_id, **names),
                SlotOpened(some_id, "note", {}, until="run", **names),
                SubagentFinished(call_id, "child", "done", usage=self._usage(), cost_usd=0.1, **names),
                SubagentStarted(call_id, "child", f"act:{call_id}", "task", **names),
                ToolFinished(call_id, "act", result, **names),
                ToolFinished(call_id, "act", self._result(call_id, 0.0), **names),
                ToolFinished(call_id, "act", ToolResult("another", "act"), **names),
                PermissionDecided(call_id, "act", "act", "x", "", allow=True, **names),
                ToolStarted(call_id, "act", "read", "", **names),
                RunStarted("child", input_id=call_id, run_id="other", path="act:2"),
                RunEnded("done", usage=Usage(3), run_id="other", path="act:1"),
                MessageAdded(assistant([ToolCall(call_id, "act")]), **names),
                ToolStarted(call_id, "act", "read", "", attempt=2, **names),
                Unknown("from_later", {"kind": "from_later", **names}, **names),
                ValueKept(some_id, [1], **names),
                ViewChanged("short", self.chance.randrange(3), **names),
            ]
        )


def describe_state(state: State) -> dict[str, Any]:
    """Return everything that a state consists of, in a form that can be compared."""
    totals = (state.past, state.own_usage, state.total_usage, state.total_usd, state.total_turns)
    apart = {"parent", "children", "open_children", "transcript"}
    plain = {name: getattr(state, name) for name in State.__slots__ if name not in apart}
    slots = [name for name in type(state.transcript).__slots__ if name != "input_tokens"]  # made from the messages
    transcript = {name: getattr(state.transcript, name) for name in slots}
    return {
        **plain,
        **transcript,
        "sends_all": state.transcript.sent_messages is state.transcript.messages,
        "order": [list(value) for value in plain.values() if isinstance(value, dict)],
        "totals": totals,
        "parent": None if state.parent is None else state.parent.path,
        "open_children": list(state.open_children),
        "children": {path: describe_state(child) for path, child in state.children.items() if state.parent is None},
    }
