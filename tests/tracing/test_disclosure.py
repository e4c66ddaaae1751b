from typing import Any

from perdure import Agent, Message, Text, Usage, tool
from perdure._tracing.view.timelines import match_snapshots
from perdure._tracing.view.trace import build_trace_entries
from perdure.events import MessageAdded, ModelRequested
from perdure.models import ToolSpec
from perdure.testing import ScriptedModel, call
from perdure.tools import tracing
from perdure.tracing import RequestSnapshot, Trace, TracedTurn, TraceEntry, Tracer
from tests.tracing.sample_traces import START, Script, coding_session


async def test_each_step_says_what_entered_and_which_tools_and_instructions_changed():
    @tool(effect="read")
    async def one() -> str:
        """One."""
        return "1"

    tracer = Tracer()
    agent = Agent(ScriptedModel(call("one"), "Done."), instructions="Be.", tools=[one], extensions=[tracing(tracer)])
    await agent.run("go")
    first, second = tracer.trace.disclosure()
    assert (first.turn, first.system, first.tools, first.added_tools) == (1, "Be.", ("one",), ("one",))
    assert (first.messages, first.messages_delta, [each.reason for each in first.entered]) == (1, 1, ["prompt"])
    assert (second.system, second.added_tools, second.removed_tools) == (None, (), ())
    assert (second.messages_delta, [each.reason for each in second.entered]) == (2, ["reply", "result of one"])
    assert second.dt >= first.dt


def test_a_stored_log_tells_added_tools_compaction_and_the_cache():
    steps = [step for step in coding_session().stored().disclosure() if not step.path]
    assert (steps[2].added_tools, steps[2].changes) == (("git_show",), ("tools",))
    assert (steps[4].changes, steps[4].messages_delta < 0) == (("compaction",), True)
    assert (steps[1].tokens, steps[1].cached_tokens, steps[1].system) == (5_480, 5_210, None)


def test_the_timeline_as_text_names_reasons():
    text = coding_session().stored().format_disclosure()
    assert "+ result of bash: " in text
    assert "changed: compaction" in text
    assert "tools: +git_show" in text
    assert "historian: turn 1" in text


def turn_at(requested_at, messages, path=""):
    return TracedTurn(turn=1, run_id="r", path=path, messages=messages, requested_at=requested_at)


def snapshot_at(t, messages, system):
    snapshot = RequestSnapshot(system=system, messages=messages)
    return TraceEntry(0, t, 0.0, "model", snapshot), snapshot


def test_snapshots_of_requests_at_the_same_time_go_to_the_last_that_has_none_and_repeated_ones_replace_it():
    first, second, longer, later = turn_at(1.0, 3), turn_at(2.0, 3, "b"), turn_at(2.5, 4), turn_at(9.0, 3)
    given = [snapshot_at(3.0, 3, "two"), snapshot_at(3.1, 3, "one"), snapshot_at(3.2, 5, "of no turn")]
    found = match_snapshots([first, second, longer, later], given)
    assert {key: each.system for key, each in found.items()} == {id(second): "two", id(first): "one"}
    repeated = match_snapshots([first, second, longer, later], [*given, snapshot_at(3.3, 3, "two again")])
    assert repeated[id(second)].system == "two again"
    assert repeated[id(first)].system == "one"


def test_a_snapshot_at_the_very_time_of_a_request_belongs_to_it():
    turn = turn_at(1.0, 3)
    assert [*match_snapshots([turn], [snapshot_at(1.0, 3, "now")])] == [id(turn)]
    assert match_snapshots([turn], [snapshot_at(0.9, 3, "before")]) == {}


def test_a_step_has_what_has_come_and_gone_since_the_last_request_that_is_known():
    one, two = ToolSpec("one", "One.", {}), ToolSpec("two", "Two.", {})
    script = Script("s")
    script.begin("r", "Go.")
    entries: list[tuple[float, Any, int]] = [(each.at, each.event, each.seq) for each in script.entries]
    for turn, shown in enumerate(
        [
            RequestSnapshot(system="Be.", tools=(one, two), messages=1),
            None,
            RequestSnapshot(system="Be.", tools=(two,), messages=3),
            RequestSnapshot(system="Be brief.", tools=(two, one), messages=2),
        ],
        1,
    ):
        at = START + turn
        messages = 2 if shown is None else shown.messages
        asked = ModelRequested(turn, messages=messages, estimated_tokens=turn * 10, run_id="r")
        entries.append((at, asked, turn))
        entries += [] if shown is None else [(at, shown, 0)]
        reply = Message("assistant", (Text("Hm."),), usage=Usage(turn * 10, 1, turn))
        entries.append((at + 0.5, MessageAdded(reply, run_id="r"), 0))
    entries.insert(-4, (START + 3.5, ModelRequested(9, messages=1, aside=True, run_id="r"), 0))
    steps = Trace(build_trace_entries(entries)).disclosure()
    assert [(each.turn, each.dt, each.system, each.tools, each.added_tools, each.removed_tools) for each in steps] == [
        (1, 1.0, "Be.", ("one", "two"), ("one", "two"), ()),
        (2, 2.0, None, (), (), ()),
        (3, 3.0, None, ("two",), (), ("one",)),
        (4, 4.0, "Be brief.", ("two", "one"), ("one",), ()),
    ]
    assert [(each.messages, each.messages_delta, each.tokens, each.cached_tokens) for each in steps] == [
        (1, 1, 10, 1),
        (2, 1, 20, 2),
        (3, 1, 30, 3),
        (2, -1, 40, 4),
    ]
