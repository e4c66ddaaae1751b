"""Glue's compactors, with our names."""

from collections.abc import Sequence

from perdure import Agent, Message, Usage, tool, user
from perdure._context.history.strategies import SNAPSHOT_INSTRUCTIONS
from perdure.context import Compaction, keep_recent
from perdure.engines import Run
from perdure.events import Compacted, ErrorRaised
from perdure.models import ModelInfo, Request
from perdure.testing import Recorder, Reply, ScriptedModel, call, calls
from tests.coming_from.shows import shows

LONG = "A rather long answer about the weather. " * 40


def ask(number: int) -> str:
    return f"Question {number}. " + "Please explain it at length. " * 40


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


@shows("glue", "Compactor", "CompactorFunc")
async def test_a_function_makes_the_message_that_stands_for_older_ones_and_the_transcript_stays():
    given = []

    def compact(run: Run, messages: Sequence[Message]):
        given.append([each.text[:10] for each in messages])
        return user(f"[{len(messages)} older messages]")

    model, recorder = ScriptedModel(LONG, repeat_last=True), Recorder()
    compaction = Compaction(at_messages=6, keep_recent_messages=2, strategy=compact)
    session = Agent(model, compaction=compaction, watchers=[recorder]).session("oslo")
    for number in range(4):
        await session.run(ask(number))
    assert given == [["Question 0", "A rather l", "Question 1", "A rather l"]]
    sent = [each.text[:10] for each in model.requests[3].messages]
    assert sent == ["[4 older m", "Question 2", "A rather l", "Question 3"]
    assert len(await session.messages()) == 8
    (compacted,) = recorder.of(Compacted)
    assert (compacted.upto, compacted.summary.text) == (4, "[4 older messages]")


@shows("glue", "CompactorFunc")
async def test_a_function_that_returns_nothing_changes_nothing():
    model = ScriptedModel(LONG, repeat_last=True)
    compaction = Compaction(at_messages=4, keep_recent_messages=2, strategy=lambda _run, _messages: None)
    session = Agent(model, compaction=compaction).session("oslo")
    for number in range(4):
        await session.run(ask(number))
    assert [len(each.messages) for each in model.requests] == [1, 3, 5, 7]


@shows("glue", "KeepRecentMessages")
async def test_the_last_messages_stay_and_a_note_says_how_many_are_left_out():
    model = ScriptedModel(LONG, LONG, Reply(LONG, calls=[call("weather", city="Oslo")]), LONG, LONG, LONG)
    compaction = Compaction(at_messages=8, keep_recent_messages=2, strategy=keep_recent)
    session = Agent(model, tools=[weather], compaction=compaction).session("oslo")
    for number in range(4):
        await session.run(ask(number))
    whole = await session.messages()
    sent = model.requests[-1].messages
    assert "5 of them" in sent[0].text
    # the last two are the result and the answer: the call of the result stays with it
    assert list(sent[1:4]) == list(whole[5:8])
    assert [len(each.messages) for each in model.requests[:3]] == [1, 3, 5]
    assert len(model.requests) == 5  # no model was asked for a summary


@shows(
    "glue",
    "SummarizingCompactor",
    "SummarizingCompactor.Provider",
    "SummarizingCompactor.Model",
    "SummarizingCompactor.TargetTokens",
    "SummarizingCompactor.KeepRecent",
    "SummarizingCompactor.SystemPrompt",
    "DefaultSummarizingSystemPrompt",
)
async def test_a_model_of_its_own_sums_up_what_is_older_once_there_are_too_many_tokens():
    model = ScriptedModel(
        *[Reply(LONG, usage=Usage(tokens, 10)) for tokens in (500, 1000, 2000)], Reply(LONG, usage=Usage(900, 10))
    )
    summarizer, recorder = ScriptedModel("It rained.", name="small"), Recorder()
    compaction = Compaction(model=summarizer, at_tokens=2000, keep_recent_messages=1, instructions="Keep every number.")
    session = Agent(model, compaction=compaction, watchers=[recorder]).session("oslo")
    for number in range(4):
        await session.run(ask(number))
    assert [len(each.messages) for each in model.requests] == [1, 3, 5, 3]  # a summary, the last reply, the question
    (request,) = summarizer.requests
    assert SNAPSHOT_INSTRUCTIONS.split("\n")[0] in request.instructions
    assert "Keep every number." in request.instructions
    assert "Question 0." in request.messages[0].text
    summary, kept, asked = model.requests[3].messages
    assert "It rained." in summary.text
    assert (kept.text, asked.text) == (LONG, ask(3))
    (compacted,) = recorder.of(Compacted)
    assert compacted.usage == Usage(10, 5)
    assert len(await session.messages()) == 8


@shows("glue", "SummarizingCompactor.KeepRecent", "SummarizingCompactor.TargetTokens")
async def test_what_stays_is_also_limited_in_tokens_and_the_window_of_the_model_counts():
    model = ScriptedModel(Reply(LONG, usage=Usage(90_000, 10)), "It rained.", "Yes.")
    model.info = ModelInfo("big", context_tokens=100_000)
    session = Agent(model, compaction=Compaction(at_fraction=0.5, keep_recent_tokens=0)).session("oslo")
    await session.run(ask(0))
    await session.run("Short.")
    summary, asked = model.requests[2].messages
    assert "It rained." in summary.text
    assert asked.text == "Short."


@shows("glue", "SummarizingCompactor.SystemPrompt")
async def test_a_strategy_may_ask_a_model_with_instructions_of_its_own():
    async def summarize(run: Run, messages: Sequence[Message]):
        request = Request(messages=[user("\n".join(each.text for each in messages))], instructions="One line.")
        return user((await run.ask_model(request)).text)

    model = ScriptedModel(LONG, LONG, "It rained.", "Yes.")
    compaction = Compaction(at_messages=4, keep_recent_messages=0, strategy=summarize)
    session = Agent(model, compaction=compaction).session("oslo")
    for number in range(3):
        await session.run(ask(number))
    assert model.requests[2].instructions == "One line."
    assert model.requests[3].messages[0].text == "It rained."


@shows("glue", "SummarizingCompactor")
async def test_a_summary_that_fails_is_reported_and_drops_nothing():
    model, recorder = ScriptedModel(LONG, LONG, ConnectionError("down"), LONG), Recorder()
    compaction = Compaction(at_messages=4, keep_recent_messages=2)
    session = Agent(model, compaction=compaction, watchers=[recorder]).session("oslo")
    for number in range(3):
        await session.run(ask(number))
    assert len(model.requests[3].messages) == 5
    (error,) = recorder.of(ErrorRaised)
    assert (error.error, error.message) == ("ConnectionError", "down")


@shows("glue", "SummarizingCompactor")
async def test_a_summary_lists_the_files_of_all_that_it_replaces():
    @tool(effect="read")
    def read_file(path: str) -> str:
        """Read a file."""
        return LONG

    @tool
    def write_file(path: str) -> str:
        """Write a file."""
        return LONG

    model = ScriptedModel(
        calls(call("read_file", path="a.txt"), call("write_file", path="b.txt")),
        LONG,
        "It went well.",  # the first summary
        calls(call("read_file", path="c.txt")),
        LONG,
        "It still goes well.",  # the second
        LONG,
    )
    compaction = Compaction(at_messages=4, keep_recent_messages=0)
    session = Agent(model, tools=[read_file, write_file], compaction=compaction).session("oslo")
    for number in range(3):
        await session.run(ask(number))
    summary = model.requests[6].messages[0].text
    assert "It still goes well." in summary
    for name in ("a.txt", "b.txt", "c.txt"):
        assert name in summary
    modified, read = summary.index("Files modified"), summary.index("Files read")
    assert modified < summary.index("b.txt") < read < summary.index("a.txt")


@shows("glue", "SummarizingCompactor")
async def test_a_summary_that_would_be_longer_than_what_it_replaces_is_not_used():
    model = ScriptedModel("Yes.", "No.", "A very long summary. " * 500, "Perhaps.")
    session = Agent(model, compaction=Compaction(at_messages=4, keep_recent_messages=0)).session("oslo")
    for number in range(3):
        await session.run(f"Question {number}?")
    assert [each.text for each in model.requests[3].messages][::2] == ["Question 0?", "Question 1?", "Question 2?"]
