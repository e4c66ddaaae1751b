"""Whether each request begins with the one before it."""

from msgspec.structs import replace

from perdure import Agent, CacheReport, Message, PrefixChange, Settings, ToolContext, Usage, assistant, tool, user
from perdure._core.model.cache import PrefixComparer, describe_prefix_change, find_first_change
from perdure._core.model.transcript import MessagesSnapshot
from perdure.events import ModelRequested
from perdure.models import ModelInfo, Request, ToolSpec
from perdure.testing import Reply, ScriptedModel, call

ONE, TWO, THREE = user("one"), assistant("two"), user("three")
LOOK = ToolSpec("look", "Looks.", {"type": "object"})


def of(*messages: Message, instructions: str = "", tools=()) -> Request:
    return Request(messages=messages, instructions=instructions, tools=tools)


def test_a_request_that_only_grows_has_not_changed() -> None:
    assert find_first_change(of(ONE), of(ONE, TWO, THREE)) == ("", 0)


def test_equal_messages_are_as_good_as_the_same() -> None:
    assert find_first_change(of(ONE, TWO), of(user("one"), assistant("two"), THREE)) == ("", 0)


def test_the_same_transcript_is_known_without_looking_at_it() -> None:
    messages = [ONE]
    before = MessagesSnapshot(messages)
    messages += [TWO, THREE]
    assert find_first_change(Request(messages=before), Request(messages=MessagesSnapshot(messages))) == ("", 0)


def test_another_transcript_is_looked_at() -> None:
    assert find_first_change(Request(messages=MessagesSnapshot([ONE])), Request(messages=MessagesSnapshot([TWO]))) == (
        "messages[0]",
        1,
    )


def test_the_first_message_that_differs_is_named() -> None:
    assert find_first_change(of(ONE, TWO, THREE), of(ONE, THREE, THREE)) == ("messages[1]", 2)


def test_a_conversation_that_was_cut_is_named_where_it_ends() -> None:
    assert find_first_change(of(ONE, TWO, THREE), of(ONE)) == ("messages[1]", 2)


def test_instructions_come_before_tools_and_tools_before_messages() -> None:
    assert find_first_change(of(ONE), of(ONE, instructions="Be brief.")) == ("instructions", 1)
    assert find_first_change(of(ONE), of(TWO, tools=(LOOK,))) == ("tools", 1)
    assert find_first_change(of(ONE, tools=(LOOK,)), of(ONE, TWO, tools=[LOOK])) == ("", 0)


def test_words_that_were_added_to_one_request_alone_cost_nothing() -> None:
    passing = user("still waiting", origin="reminder")
    assert find_first_change(of(ONE, passing), of(ONE, TWO, passing)) == ("", 0)
    assert find_first_change(of(passing), of(ONE)) == ("", 0)


def test_another_model_has_another_cache() -> None:
    watch = PrefixComparer()
    watch.compare_request(of(ONE), ModelInfo("a"), 1)
    watch.compare_request(of(ONE, TWO), ModelInfo("b"), 2)
    report = watch.build_report(Usage(100, 5, cache_read_tokens=60, cache_write_tokens=20))
    assert (report.first_changed, report.requests) == ("model", 1)
    assert (report.input_tokens, report.read_tokens, report.written_tokens) == (100, 60, 20)


async def test_an_outcome_says_what_spoiled_the_cache() -> None:
    @tool
    async def other() -> str:
        """Does nothing."""
        return ""

    @tool
    async def more(context: ToolContext) -> str:
        """Adds a tool."""
        context.add_tools(other, scope="process")
        return "added"

    usage = Usage(50, 5, cache_read_tokens=40)
    model = ScriptedModel(call("more"), Reply("done", usage=usage), Reply("again", usage=usage))
    session = Agent(model, tools=[more]).session()
    first = await session.run("one")
    assert first.cache.first_changed == "tools"
    assert first.cache.changes[0].turn == 2
    assert first.cache.read_tokens == 40
    second = await session.run("two")
    assert second.cache.first_changed == "tools"  # those that were added are gone again
    assert second.cache.requests == 1
    await session.aclose()


async def test_a_run_that_only_adds_has_a_stable_prefix() -> None:
    session = Agent(ScriptedModel("a", "b"), settings=Settings(temperature=0.0)).session()
    await session.run("one")
    outcome = await session.run("two")
    assert (outcome.cache.requests, outcome.cache.first_changed) == (1, "")
    await session.aclose()


def test_the_cause_of_a_miss_is_the_first_part_that_differs() -> None:
    before = ModelRequested(1, model="m", provider="p", prefix="a-b")

    def cause(segment: str = "", **changes: str) -> str:
        return describe_prefix_change(before, replace(before, **changes), segment)

    assert cause() == ""
    assert cause("messages[3]") == "messages"
    assert cause("tools") == ""
    assert cause(model="n") == cause(provider="q") == cause("messages[3]", model="n", prefix="c-d") == "model"
    assert cause(prefix="a-c") == cause("messages[3]", prefix="a-c") == "tools"
    assert cause(prefix="c-b") == cause(prefix="c-d") == "instructions"


def test_a_transcript_that_has_grown_is_compared_in_its_instructions_and_tools_too() -> None:
    messages = [user("a"), assistant("b"), user("c")]
    sent, grown = MessagesSnapshot(messages[:2]), MessagesSnapshot(messages)
    whole = MessagesSnapshot(messages)
    assert find_first_change(Request(messages=whole), Request(messages=whole)) == ("", 0)
    assert find_first_change(Request(messages=whole), Request(messages=whole, instructions="x")) == ("instructions", 3)
    other = [ToolSpec("t", "", {})]
    assert find_first_change(Request(messages=whole), Request(messages=whole, tools=other)) == ("tools", 3)
    assert find_first_change(Request(messages=sent), Request(messages=grown)) == ("", 0)


def test_a_report_counts_each_request_after_the_first() -> None:
    comparer = PrefixComparer()
    one, other = ModelInfo("one"), ModelInfo("other")
    assert comparer.compare_request(of(user("a")), one, 1) == ""
    assert comparer.compare_request(of(user("a"), user("b")), one, 2) == ""
    assert comparer.compare_request(of(user("x"), user("b")), one, 3) == "messages[0]"
    assert comparer.compare_request(of(user("x"), user("b")), other, 4) == "model"
    report = comparer.build_report(Usage(100, 5, cache_read_tokens=40, cache_write_tokens=7))
    assert report == CacheReport(
        requests=3,
        changes=(PrefixChange(3, "messages[0]", 2), PrefixChange(4, "model", 2)),
        input_tokens=report.input_tokens,
        read_tokens=40,
        written_tokens=7,
    )
