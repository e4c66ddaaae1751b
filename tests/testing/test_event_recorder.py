"""A recorder remembers what it sees, and draws it the same way each time."""

import itertools
from typing import Any

import pytest

from perdure import Agent, ConfigError, RateLimited, Status, Text, ToolCall, ToolResult, Usage, assistant, tool, user
from perdure.events import (
    Custom,
    Entry,
    GuardrailTripped,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    QuestionAsked,
    ReplyDiscarded,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SubagentFinished,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from perdure.models import retried
from perdure.testing import FakeClock, Recorder, ScriptedModel, call

numbers = itertools.count(1)


def recorded(*events):
    recorder = Recorder()
    for event in events:
        recorder(Entry(next(numbers) if event.durable else 0, 0.0, event))
    return recorder


def started(call_id, name, **place):
    return ToolStarted(call_id, name, "read", "hash", f"key-{next(numbers)}", **place)


def finished(call_id, name, text="", status=Status.OK, seconds=0.0, **place):
    content = (Text(text),) if text else ()
    return ToolFinished(call_id, name, ToolResult(call_id, name, content, status), seconds, **place)


WEATHER = (
    RunStarted("umbrella", run_id="r1"),
    MessageAdded(user("Weather in Oslo?"), run_id="r1"),
    TurnStarted(1),
    ModelRequested(1),
    TextDelta("I'll "),
    TextDelta("look."),
    ToolCallDelta("c1", "weather", '{"city":'),
    ToolCallDelta(arguments='"Oslo"}'),
    UsageReported(Usage(3, 4)),
    MessageAdded(assistant(["I'll look.", ToolCall("c1", "weather", '{"city":"Oslo"}')])),
    started("c1", "weather"),
    finished("c1", "weather", "Rain.", seconds=0.25),
    TurnEnded(1),
    TurnStarted(2),
    ModelRequested(2),
    TextDelta("Take an umbrella."),
    MessageAdded(assistant("Take an umbrella.")),
    TurnEnded(2),
    RunEnded("done"),
)


# -- remembering -------------------------------------------------------------------------------------------------------


def test_it_keeps_entries_events_and_kinds_in_order():
    recorder = recorded(RunStarted(), TextDelta("hi"), RunEnded("done"))
    assert [entry.event for entry in recorder.entries] == recorder.events
    assert recorder.kinds == ["run_started", "text_delta", "run_ended"]
    assert repr(recorder) == "<Recorder: 3 entries>"


def test_its_text_is_what_the_sessions_own_agent_said():
    assert recorded(TextDelta("Hel"), TextDelta("psst", path="child"), TextDelta("lo")).text == "Hello"


def test_events_of_one_kind_are_found():
    assert recorded(*WEATHER).of(RunEnded) == [RunEnded("done")]


def test_it_can_forget():
    recorder = recorded(*WEATHER)
    recorder.clear()
    assert (recorder.entries, recorder.tree()) == ([], "")


def test_what_is_no_entry_is_refused():
    recorder: Any = Recorder()
    with pytest.raises(ConfigError, match="called with an Entry"):
        recorder(TextDelta("hi"))


# -- drawing -----------------------------------------------------------------------------------------------------------


def test_a_run_is_a_tree_of_turns_deltas_and_tools():
    assert recorded(*WEATHER).tree() == (
        "run umbrella: done\n"
        '  user: "Weather in Oslo?"\n'
        "  turn 1\n"
        '    text: "I\'ll look."\n'
        '    call weather: {"city":"Oslo"}\n'
        '    tool weather: ok "Rain."\n'
        "  turn 2\n"
        '    text: "Take an umbrella."'
    )


def test_printing_a_recorder_shows_the_tree():
    recorder = recorded(*WEATHER)
    assert str(recorder) == recorder.tree()


def test_counts_and_durations_are_told_on_request():
    lines = recorded(*WEATHER).tree(counts=True, durations=True).splitlines()
    assert lines[3:6] == [
        '    text x2: "I\'ll look."',
        '    call weather x2: {"city":"Oslo"}',
        '    tool weather: ok "Rain." (0.250 s)',
    ]


def test_the_same_run_with_other_ids_gives_the_same_tree():
    def run(call_id):
        return recorded(RunStarted(run_id=call_id), started(call_id, "a"), finished(call_id, "a"), RunEnded("done"))

    assert run("one").tree() == run("two").tree() == "run: done\n  tool a: ok"


async def test_an_agents_run_gives_the_same_tree_each_time():
    @tool
    async def weather(city: str) -> str:
        """Today's weather for a city."""
        return f"Rain in {city}."

    async def tree():
        recorder, clock = Recorder(), FakeClock(auto=True)
        model = retried(ScriptedModel(call("weather", city="Oslo"), RateLimited("slow"), "Rain.", chunk=2), clock=clock)
        await Agent(model, tools=[weather], watchers=[recorder], clock=clock).run("Oslo?")
        return recorder.tree()

    assert (
        await tree()
        == await tree()
        == (
            "session_opened: entries=0\n"
            "run agent: done\n"
            '  user: "Oslo?"\n'
            "  turn 1\n"
            '    call weather: {"city":"Oslo"}\n'
            '    tool weather: ok "Rain in Oslo."\n'
            "  turn 2\n"
            '    retry_scheduled: attempt=1 max_attempts=4 error="RateLimited" message="slow"\n'
            '    text: "Rain."'
        )
    )


def test_merged_deltas_give_the_same_tree_as_single_ones():
    single = recorded(RunStarted(), TextDelta("a"), TextDelta("b"), RunEnded("done"))
    merged = recorded(RunStarted(), TextDelta("ab"), RunEnded("done"))
    assert single.tree() == merged.tree()


def test_parallel_tools_stand_in_the_order_of_their_start_with_their_progress_below():
    recorder = recorded(
        RunStarted(),
        TurnStarted(1),
        started("c1", "slow"),
        started("c2", "quick"),
        ToolProgress("c1", "slow", {"done": 1}),
        finished("c2", "quick", "no", Status.ERROR),
        ToolProgress("c1", "slow", {"done": 2}),
        TurnStarted(2),
    )
    assert recorder.tree(counts=True) == (
        "run: still going\n"
        "  turn 1\n"
        "    tool slow: no result\n"
        '      progress x2: {"done":2}\n'
        '    tool quick: error "no"\n'
        "  turn 2"
    )


def test_agents_below_are_drawn_under_the_call_that_started_them():
    recorder = recorded(
        RunStarted(),
        TurnStarted(1),
        started("c1", "ask"),
        started("c2", "other"),
        SubagentStarted("c1", "scout", "Look around"),
        RunStarted("scout", path="scout"),
        TurnStarted(1, path="scout"),
        finished("c2", "other"),
        TextDelta("Nothing ", path="scout"),
        RunStarted(path="scout/deep"),
        TextDelta("deep", path="scout/deep"),
        RunEnded("done", path="scout/deep"),
        RunEnded("limit", "max_turns", path="scout"),
        SubagentFinished("c1", "scout", "limit"),
        finished("c1", "ask", "Nothing"),
        RunStarted(path="scout"),
        TurnEnded(1),
        RunEnded("done"),
    )
    assert recorder.tree() == (
        "run: done\n"
        "  turn 1\n"
        '    tool ask: ok "Nothing"\n'
        '      subagent scout: "Look around"\n'
        "      agent scout: limit, max_turns\n"
        "        turn 1\n"
        '          text: "Nothing "\n'
        "          agent deep: done\n"
        '            text: "deep"\n'
        '      subagent_finished: name="scout" status="limit"\n'
        "      agent scout: still going\n"
        "    tool other: ok"
    )


def test_a_reply_whose_deltas_were_not_seen_is_told_from_its_message():
    recorder = recorded(RunStarted(), TurnStarted(1), MessageAdded(assistant(["Hm.", ToolCall("c", "a", '{"x":1}')])))
    assert recorder.tree().splitlines()[2:] == ['    text: "Hm."', '    call a: {"x":1}']


def test_what_steps_in_is_a_line_with_what_stays_the_same_each_time():
    recorder = recorded(
        RunStarted(),
        TurnStarted(1),
        ThinkingDelta("Hm"),
        ReplyDiscarded(1, "ProviderDown", assistant("Hm")),
        RetryScheduled(1, 3, 0.7312, "ProviderDown", "gone"),
        ModelRequested(1, 2),
        QuestionAsked("a1", "permission", "", ({"tool": "shell"}, {"tool": "write"})),
        PermissionDecided("c1", "shell", "shell", "rm", "hash", allow=False, reason="too risky"),
        PermissionDecided("c2", "write", "write", "x", "hash", allow=True),
        GuardrailTripped("repeat", 3, "nudge"),
        MessageAdded(user("You repeat yourself.", origin="guardrail")),
        Custom("seen", {"at": 1}),
        RunEnded("failed", "ProviderDown", "gone for good"),
    )
    assert recorder.tree() == (
        'run: failed, ProviderDown "gone for good"\n'
        "  turn 1\n"
        '    thinking: "Hm"\n'
        '    reply_discarded: turn=1 reason="ProviderDown"\n'
        '    retry_scheduled: attempt=1 max_attempts=3 error="ProviderDown" message="gone"\n'
        "    asked again, attempt 2\n"
        "    permission asked: shell, write\n"
        "    permission shell: denied too risky\n"
        "    permission write: allowed\n"
        '    guardrail_tripped: guardrail="repeat" count=3 action="nudge"\n'
        '    user (guardrail): "You repeat yourself."\n'
        '    custom: name="seen" data={"at":1}'
    )
    assert "delay_seconds=0.7312" in recorder.tree(durations=True)


def test_an_answer_without_words_or_a_piece_of_a_call_without_a_name_is_drawn_too():
    recorder = recorded(RunStarted(), ToolCallDelta(arguments="{}"), RunEnded("done"), RunStarted())
    recorder(Entry(1, 0.0, MessageAdded(assistant([]))))
    assert recorder.tree() == "run: done\n  call: {}\nrun: still going"


def test_a_run_whose_beginning_was_not_seen_is_drawn_too():
    assert recorded(TextDelta("..."), TurnEnded(1), RunEnded("done")).tree() == 'text: "..."\nrun: done'


def test_two_runs_of_a_session_stand_one_after_the_other():
    recorder = recorded(RunStarted(), RunEnded("done"), RunStarted(), TurnStarted(1), RunEnded("cancelled"))
    assert recorder.tree() == "run: done\nrun: cancelled\n  turn 1"


def test_long_and_odd_texts_fit_on_a_line():
    recorder = recorded(TextDelta("x" * 500), ThinkingDelta("two\nlines \ud800"))
    first, second = recorder.tree().splitlines()
    assert len(first) < 90
    assert first.endswith('…"')
    assert second == 'thinking: "two\\nlines \N{REPLACEMENT CHARACTER}"'


def test_what_comes_between_two_turns_is_drawn_beside_them():
    recorder = recorded(
        RunStarted(), TurnStarted(1), TurnEnded(1), MessageAdded(user("And now?", origin="follow_up")), TurnStarted(2)
    )
    assert recorder.tree() == 'run: still going\n  turn 1\n  user (follow_up): "And now?"\n  turn 2'


def test_agents_of_one_name_are_drawn_below_the_calls_that_started_each_of_them():
    recorder = recorded(
        RunStarted(),
        started("c1", "ask"),
        SubagentStarted("c1", "scout", "Left", child="scout-1"),
        started("c2", "ask"),
        SubagentStarted("c2", "scout", "Right", child="scout-2"),
        TextDelta("one", path="scout-1"),
        started("c3", "ask", path="scout-1"),
        SubagentStarted("c3", "deep", "Down", path="scout-1"),
        TextDelta("two", path="scout-2"),
        TextDelta("three", path="scout-1/deep"),
        TextDelta("four", path="unseen/far"),
    )
    assert recorder.tree() == (
        "run: still going\n"
        "  tool ask: no result\n"
        '    subagent scout: "Left"\n'
        "    agent scout-1\n"
        '      text: "one"\n'
        "      tool ask: no result\n"
        '        subagent deep: "Down"\n'
        "        agent deep\n"
        '          text: "three"\n'
        "  tool ask: no result\n"
        '    subagent scout: "Right"\n'
        "    agent scout-2\n"
        '      text: "two"\n'
        "  agent unseen\n"
        "    agent far\n"
        '      text: "four"'
    )


def test_deltas_of_another_kind_or_place_begin_a_line():
    recorder = recorded(
        ThinkingDelta("a", index=0),
        ThinkingDelta("b", index=1),
        ThinkingDelta("c", index=1),
        ToolCallDelta("1", "x", "[1", index=0),
        ToolCallDelta("2", "y", "[2]", index=1),
        ToolCallDelta(arguments="]", index=1),
        TextDelta("d"),
    )
    assert recorder.tree(counts=True) == ('thinking: "a"\nthinking x2: "bc"\ncall x: [1\ncall y x2: [2]]\ntext: "d"')


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (TextDelta("x" * 72), f'text: "{"x" * 72}"'),
        (TextDelta("x" * 73), f'text: "{"x" * 71}…"'),
        (RunEnded("failed", error="x" * 400), f'run: failed "{"x" * 400}"'),
        (RunEnded("failed", error="x" * 401), f'run: failed "{"x" * 399}…"'),
        (ReplyDiscarded(1, "cut_off", aside=True), 'reply_discarded: turn=1 reason="cut_off" aside=true'),
        (finished("c", "look", seconds=0.25), "tool look: ok"),
        (ModelRequested(1, 2), "asked again, attempt 2"),
        (Custom("odd", {"text": "x" * 80}), f'custom: name="odd" data={{"text":"{"x" * 62}…'),
    ],
)
def test_a_line_shows_as_much_of_a_text_as_there_is_room_for(event, line):
    assert recorded(event).tree() == line


def test_a_reply_of_text_alone_or_of_calls_alone_is_told_from_its_message():
    assert recorded(MessageAdded(assistant("Hm."))).tree() == 'text: "Hm."'
    assert recorded(MessageAdded(assistant([ToolCall("c", "a", "{}")]))).tree() == "call a: {}"


def test_what_comes_after_a_run_does_not_belong_to_it():
    recorder = recorded(RunStarted(), TurnStarted(1), RunEnded("done"), Custom("noted", 1))
    assert recorder.tree() == 'run: done\n  turn 1\ncustom: name="noted" data=1'
