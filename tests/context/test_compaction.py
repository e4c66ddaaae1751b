"""When a conversation is summed up, and what of it."""

import asyncio
from typing import Any

import pytest

from perdure import (
    ConfigError,
    ContextOverflow,
    Message,
    OutOfBudget,
    ProviderDown,
    Settings,
    StoreError,
    Text,
    ToolResult,
    Usage,
    assistant,
    user,
)
from perdure._context.history.strategies import MAX_SUMMARY_TOKENS, MIN_SUMMARY_TOKENS
from perdure._context.history.summary import read_summary_data
from perdure._context.history.tokens import estimate_message_tokens, estimate_messages_tokens, get_token_counter
from perdure.context import Compaction, count_context_tokens, keep_recent
from perdure.events import Compacted, CompactionStarted, ReplyDiscarded, ViewChanged
from perdure.testing import Reply
from tests.context.conversation import SNAPSHOT, Conversation, is_for_summary, long_talk, model_of, summing_up
from tests.doubles import kind, of
from tests.transcript import assert_valid


async def compactions(talk: Conversation) -> list[str]:
    return [event.cause for event in of(await talk.log(), CompactionStarted)]


# -- what happens ------------------------------------------------------------------------------------------------------


async def test_the_model_is_sent_a_summary_and_the_latest_messages_and_the_log_keeps_everything():
    talk = Conversation(summing_up(window=20_000))
    run = await long_talk(talk, 40)
    before = list(run.state.messages)
    assert await Compaction(keep_recent_messages=4).compact(run)
    view = run.state.view
    assert SNAPSHOT in view[0].text
    assert view[0].origin == "compaction"
    assert view[1:] == before[-4:]
    assert run.state.messages == before
    assert_valid(view)


@pytest.mark.parametrize("kept", [0, 1, 2, 7, 8])
@pytest.mark.parametrize(
    "options", [{}, {"at_messages": 10}, {"at_turns": 3}, {"at_tokens": 100_000}, {"keep_recent_tokens": 90_000}]
)
async def test_exactly_so_many_messages_stay_as_are_to_stay(kept, options):
    talk = Conversation(summing_up())
    run = await long_talk(talk, 12)
    await talk.says("Faster!", origin="steering")
    before = list(run.state.messages)
    assert await Compaction(keep_recent_messages=kept, **options).compact(run)
    view = run.state.view
    assert view[1:] == before[-1 - kept - kept % 2 :]  # the call of the first one, and what has no reply
    assert_valid(view)


async def test_the_latest_call_and_result_stay_although_they_are_most_of_the_conversation():
    talk = Conversation(summing_up())
    run = await long_talk(talk, 2)
    await talk.calls(("read_file", '{"path": "log"}', "line " * 2000))
    before = list(run.state.messages)
    await Compaction(at_turns=3, keep_recent_messages=2)(run)
    assert run.state.view[1:] == before[-2:]


async def test_of_the_messages_to_keep_those_stay_that_there_is_room_for():
    talk = Conversation(summing_up(window=4_000))
    run = await long_talk(talk, 3)
    await talk.calls(("grep", "{}", "match " * 5_000))
    await talk.calls(("look", "{}", "seen"))
    before = list(run.state.messages)
    assert await Compaction(keep_recent_messages=6).compact(run)
    assert run.state.view[1:] == before[-2:]
    assert await Compaction(keep_recent_messages=6, keep_recent_tokens=0).compact(run)
    assert len(run.state.view) == 1


@pytest.mark.parametrize("window", [None, 200_000])
async def test_a_long_conversation_takes_one_request_for_its_summary_whether_the_window_is_known_or_not(window):
    talk = Conversation(summing_up(window=window))
    run = await talk.begin()
    for _ in range(150):
        await talk.says("x y z " * 340, origin="steering")
        await talk.answers("Aye.")
    assert await Compaction().compact(run)
    assert len(talk.model.requests) == 1


async def test_a_strategy_may_be_a_plain_function():
    run = await long_talk(Conversation(), 9)
    assert await Compaction(strategy=lambda _run, replaced: user(f"{len(replaced)} before")).compact(run)
    assert run.state.view[0].text.endswith(" before")


async def test_what_is_logged_says_why_how_large_it_was_and_what_it_took():
    talk = Conversation(summing_up(window=20_000))
    run = await long_talk(talk, 40)
    tokens = count_context_tokens(run)
    await Compaction().compact(run, "manual")
    started, compacted, changed = (await talk.log())[-3:]
    assert started == CompactionStarted("manual", tokens, run_id="r1")
    assert isinstance(compacted, Compacted)
    assert compacted.summary == run.state.view[0]
    assert compacted.upto == len(run.state.messages) - len(run.state.view) + 1
    assert abs(compacted.tokens - count_context_tokens(run)) < 5
    assert compacted.usage == Usage(100, 20)
    assert changed == ViewChanged("compaction", run_id="r1")
    assert run.state.usage == Usage(100, 20)


async def test_whoever_opens_the_session_later_sees_the_same():
    talk = Conversation(summing_up(window=8_000))
    run = await long_talk(talk, 40)
    await Compaction().compact(run)
    await talk.calls(("look", "{}", "seen"))
    await Compaction(keep_recent_messages=0).compact(run)
    state = await talk.refolded()
    assert state.view == run.state.view
    assert state.messages == run.state.messages
    assert state.usage == run.state.usage


async def test_a_second_summary_begins_with_the_first():
    talk = Conversation(summing_up("## Goal\nThe first snapshot.", window=8_000))
    run = await long_talk(talk, 30)
    await Compaction().compact(run)
    upto, before = run.state.transcript.compacted_count, len(talk.model.requests)
    for number in range(30, 60):
        await talk.calls(("write_file", f'{{"path": "/boat/{number}.txt"}}', "written " * 40))
    await Compaction().compact(run)
    asked = "".join([request.messages[0].text for request in talk.model.requests[before:]])
    assert "The first snapshot." in asked
    assert f"[{upto + 1}] " in asked
    assert f"[{upto}] " not in asked
    assert "[1] user" not in asked
    files = read_summary_data(run.state.view).files
    assert "/boat/0.txt" in files.read
    assert "/boat/31.txt" in files.modified


async def test_the_request_of_the_run_is_never_lost():
    talk = Conversation(summing_up(window=8_000))
    run = await long_talk(talk, 30)
    for _ in range(4):
        await Compaction(keep_recent_messages=2).compact(run)
        assert "Please moor the boat." in run.state.view[0].text
        await talk.calls(*[("look", "{}", "seen " * 100)] * 5)


async def test_what_is_unanswered_stays_word_for_word():
    talk = Conversation(summing_up(window=8_000))
    run = await long_talk(talk, 30)
    await talk.says("The red one! " * 50, origin="steering")
    await talk.says("And quickly. " * 50, origin="steering")
    await Compaction(keep_recent_tokens=0).compact(run)
    assert [each.origin for each in run.state.view] == ["compaction", "steering", "steering"]


async def test_a_result_that_would_fill_the_window_is_summed_up_with_its_call():
    talk = Conversation(summing_up(window=4_000))
    run = await long_talk(talk, 3)
    await talk.calls(("grep", "{}", "match " * 20_000))
    await Compaction()(run)
    assert [each.origin for each in run.state.view] == ["compaction"]
    assert count_context_tokens(run) < 2_000


# -- when --------------------------------------------------------------------------------------------------------------


async def test_it_is_due_at_a_fraction_of_the_window():
    talk = Conversation(summing_up(window=10_000))
    run = await talk.begin()
    await talk.answers("Aye.", usage=Usage(3_990, 5))
    assert Compaction(at_fraction=0.4).find_cause(run) == ""
    await talk.answers("Aye.", usage=Usage(3_996, 5))
    assert Compaction(at_fraction=0.4).find_cause(run) == "tokens"
    assert Compaction().find_cause(run) == ""


@pytest.mark.parametrize(
    ("reserve", "settings", "limit"),
    [
        (None, Settings(), 75_000),
        (None, Settings(max_output_tokens=40_000), 60_000),
        (50_000, Settings(max_output_tokens=40_000), 50_000),
        (90_000, Settings(), 50_000),
        (0, Settings(), 95_000),
    ],
)
async def test_the_answer_has_its_room(reserve, settings, limit):
    model = summing_up(window=100_000)
    model.info = type(model.info)("big", context_tokens=100_000, max_output_tokens=64_000)
    run = await Conversation(model, settings=settings).begin()
    assert Compaction(at_fraction=0.95, reserve_tokens=reserve).limit_tokens(run) == limit


async def test_a_size_of_the_context_can_be_given_whatever_the_window():
    talk = Conversation()
    run = await talk.begin()
    assert Compaction().limit_tokens(run) is None
    assert Compaction(at_tokens=500).limit_tokens(run) == 500
    await talk.answers("Aye.", usage=Usage(500, 5))
    assert Compaction(at_tokens=500).find_cause(run) == "tokens"
    assert Compaction().find_cause(run) == ""


async def test_it_is_due_at_so_many_messages():
    talk = Conversation()
    run = await long_talk(talk, 9)
    compaction = Compaction(at_messages=20)
    assert compaction.find_cause(run) == ""
    await talk.calls(("look", "{}", "seen"))
    assert compaction.find_cause(run) == "messages"
    await compaction(run)
    assert len(run.state.view) <= 11
    assert compaction.find_cause(run) == ""


async def test_it_is_due_at_so_many_turns_since_the_last_summary():
    talk = Conversation()
    run = await long_talk(talk, 9)
    compaction = Compaction(at_turns=10)
    assert compaction.find_cause(run) == ""
    await talk.calls(("look", "{}", "seen"))
    assert compaction.find_cause(run) == "turns"
    await compaction(run)
    for _ in range(9):
        await talk.calls(("look", "{}", "seen " * 50))
        assert compaction.find_cause(run) == ""
    await talk.calls(("look", "{}", "seen"))
    assert compaction.find_cause(run) == "turns"


@pytest.mark.parametrize(
    ("options", "kept"),
    [({"at_messages": 12}, 6), ({"at_turns": 4}, 4), ({"at_messages": 12, "at_turns": 4}, 4)],
    ids=["messages", "turns", "both"],
)
async def test_fewer_messages_stay_than_would_make_it_due_again(options, kept):
    talk = Conversation(summing_up(window=1_000_000))  # going by tokens, a quarter would stay
    run = await long_talk(talk, 40, size=70)
    compaction = Compaction(**options)
    assert await compaction.compact(run)
    assert len(run.state.view) - 1 == kept
    assert compaction.find_cause(run) == ""


@pytest.mark.parametrize("words", [2_000, 400_000])
async def test_a_note_without_a_model_is_half_as_large_as_what_it_stands_for_and_never_large(words):
    talk = Conversation()
    run = await talk.begin("harbour " * words)
    replaced = run.state.view[:]
    note = await keep_recent(run, replaced)
    most = min(estimate_messages_tokens(replaced) // 2, MAX_SUMMARY_TOKENS)
    assert most // 6 < estimate_message_tokens(note) <= max(most // 3, MIN_SUMMARY_TOKENS)


async def test_before_calls_are_made_a_little_less_is_enough():
    talk = Conversation()
    run = await long_talk(talk, 20)
    compaction = Compaction(at_tokens=10_000)
    await talk.calls(("look", "{}", ""), usage=Usage(9_100, 10), settle=False)
    assert compaction.find_cause(run) == "before_tools"
    await compaction(run)
    assert run.state.view[0].origin == "compaction"
    await talk.finishes(ToolResult("c20", "look", (Text("seen"),)))
    assert_valid(run.state.view)
    assert run.state.view[-1].tool_results[0].call_id == "c20"
    assert compaction.find_cause(run) == ""


async def test_the_fraction_of_the_limit_before_tool_calls_can_be_given():
    talk = Conversation()
    run = await long_talk(talk, 20)
    await talk.calls(("look", "{}", ""), usage=Usage(6_100, 10), settle=False)
    assert Compaction(at_tokens=10_000).find_cause(run) == ""
    assert Compaction(at_tokens=10_000, before_tools_fraction=0.6).find_cause(run) == "before_tools"


@pytest.mark.parametrize(("more", "cause"), [(0, "before_tools"), (1, "")])
async def test_before_calls_are_made_it_is_due_at_the_fraction_and_not_below_it(more: int, cause: str) -> None:
    talk = Conversation()
    run = await long_talk(talk, 20)
    await talk.calls(("look", "{}", ""), settle=False)
    tokens = get_token_counter(run).count_context_tokens(run)
    compaction = Compaction(at_tokens=tokens * 2 + more, before_tools_fraction=0.5)
    assert compaction.find_cause(run) == cause


async def test_counting_messages_and_turns_waits_for_the_results():
    talk = Conversation()
    run = await long_talk(talk, 20)
    await talk.calls(("look", "{}", ""), settle=False)
    assert Compaction(at_messages=4, at_turns=1).find_cause(run) == ""


async def test_nothing_is_done_when_it_is_not_due():
    talk = Conversation(summing_up(window=100_000))
    run = await long_talk(talk, 5)
    await Compaction()(run)
    assert await compactions(talk) == []


# -- never larger, never lost ------------------------------------------------------------------------------------------


async def test_a_summary_that_would_not_be_shorter_is_not_used_and_not_tried_every_turn():
    talk = Conversation(summing_up("long " * 400))
    run = await talk.begin()
    for _ in range(4):
        await talk.calls(("look", "{}", "seen"))
    compaction = Compaction(at_messages=6)
    await compaction(run)
    await talk.calls(("look", "{}", "s"))
    await compaction(run)
    assert len(talk.model.requests) == 1
    assert of(await talk.log(), Compacted) == []
    assert run.state.view == run.state.messages
    (discarded,) = of(await talk.log(), ReplyDiscarded)
    assert discarded.reason == "compaction"
    assert run.state.usage == Usage(100, 20)
    await talk.calls(("look", "{}", "seen " * 2000))
    await compaction(run)
    assert len(talk.model.requests) == 2


async def test_a_conversation_of_nothing_but_a_question_cannot_be_summed_up():
    talk = Conversation(summing_up(window=1_000))
    run = await talk.begin("moor " * 5_000)
    assert not await Compaction().compact(run)
    assert not await Compaction().compact(run, "overflow")
    assert await compactions(talk) == []


async def test_a_summary_is_not_summed_up_again_when_nothing_followed():
    talk = Conversation(summing_up(window=8_000))
    run = await long_talk(talk, 30)
    compaction = Compaction(keep_recent_tokens=0)
    assert await compaction.compact(run)
    assert not await compaction.compact(run)


@pytest.mark.parametrize("answer", [ProviderDown("gone"), Reply(" "), OutOfBudget("no more")])
async def test_a_model_that_cannot_sum_up_leaves_everything_as_it_was_and_is_asked_again_later(answer, caplog):
    model = model_of(answer, Reply(SNAPSHOT), window=10_000, repeat_last=True)
    talk = Conversation(model)
    run = await long_talk(talk, 60)
    compaction = Compaction()
    await compaction(run)
    assert "compaction failed in run r1" in caplog.text
    assert run.state.view == run.state.messages
    await talk.calls(("look", "{}", "s"))
    await compaction(run)
    assert len(model.requests) == 1
    await talk.calls(("look", "{}", "seen " * 2_000))
    await compaction(run)
    assert run.state.view[0].origin == "compaction"


async def test_a_log_that_cannot_be_written_is_told_at_once():
    async def broken(run: Any, replaced: Any) -> Message:
        raise StoreError("the disk is full")

    run = await long_talk(Conversation(), 20)
    with pytest.raises(StoreError):
        await Compaction(strategy=broken).compact(run)


async def test_a_cancel_while_it_sums_up_changes_nothing():
    async def waits(request: Any) -> str:
        await asyncio.Event().wait()
        return ""

    talk = Conversation(model_of(waits))
    run = await long_talk(talk, 20)
    task = asyncio.create_task(Compaction().compact(run))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.state.view == run.state.messages
    assert not get_token_counter(run).compacting


# -- too long already --------------------------------------------------------------------------------------------------


async def test_a_window_that_nobody_knew_is_learned_from_the_refusal():
    talk = Conversation(summing_up())
    run = await long_talk(talk, 40)
    tokens = count_context_tokens(run)
    assert Compaction().limit_tokens(run) is None
    assert await Compaction().compact(run, "overflow")
    assert count_context_tokens(run) < tokens / 2
    assert Compaction(reserve_tokens=0).limit_tokens(run) == int(tokens * 0.8)
    await long_talk_more(talk, 40)
    assert await Compaction().compact(run, "overflow", error=ContextOverflow("too long", window_tokens=2_000))
    assert get_token_counter(run).window == 2_000
    assert count_context_tokens(run) < 1_600


@pytest.mark.parametrize(("known", "learned"), [(50_000, 2_000), (2_000, 50_000)])
async def test_of_a_window_that_is_known_and_one_that_was_learned_the_smaller_one_counts(known, learned):
    talk = Conversation(summing_up(window=known))
    run = await long_talk(talk, 40)
    assert await Compaction().compact(run, "overflow", error=ContextOverflow("too long", window_tokens=learned))
    assert Compaction(reserve_tokens=0).limit_tokens(run) == Compaction(reserve_tokens=0).limit_tokens(
        await long_talk(Conversation(summing_up(window=2_000)), 1)
    )


async def test_of_windows_that_were_learned_before_and_after_a_summary_the_smaller_one_counts():
    talk = Conversation(summing_up())
    run = await long_talk(talk, 40)
    assert await Compaction().compact(run, "overflow", error=ContextOverflow("too long", window_tokens=2_000))
    get_token_counter(run).window = 50_000
    assert Compaction(reserve_tokens=0).limit_tokens(run) == Compaction(reserve_tokens=0).limit_tokens(
        await long_talk(Conversation(summing_up(window=2_000)), 1)
    )


async def long_talk_more(talk: Conversation, turns: int) -> None:
    for _ in range(turns):
        await talk.calls(("look", "{}", "seen " * 80))


@pytest.mark.parametrize("answer", [ProviderDown("gone"), Reply(""), Reply("huge " * 60_000)])
async def test_a_conversation_that_is_too_long_goes_on_even_without_a_summary(answer):
    talk = Conversation(model_of(answer, repeat_last=True))
    run = await long_talk(talk, 40)
    tokens = count_context_tokens(run)
    assert await Compaction().compact(run, "overflow")
    assert count_context_tokens(run) < tokens / 2
    assert "Please moor the boat." in run.state.view[0].text
    if not isinstance(answer, Reply) or not answer.text:
        assert "could not be summed up" in run.state.view[0].text
    assert_valid(run.state.view)


async def test_nothing_more_can_be_done_when_only_the_summary_and_the_question_are_left():
    talk = Conversation(summing_up())
    run = await long_talk(talk, 40)
    await talk.says("moor " * 3_000)
    compaction = Compaction()
    assert await compaction.compact(run, "overflow")
    sizes = [estimate_messages_tokens(run.state.view)]
    while await compaction.compact(run, "overflow"):
        sizes.append(estimate_messages_tokens(run.state.view))
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) < 5


async def test_a_request_for_a_summary_that_is_too_long_does_not_begin_another_compaction():
    answers: list[bool] = []
    compaction = Compaction()

    async def refuses(request: Any) -> Any:
        assert is_for_summary(request)
        answers.append(await compaction.compact(run, "overflow"))
        return ContextOverflow("too long", window_tokens=3_000) if len(answers) == 1 else SNAPSHOT

    talk = Conversation(model_of(refuses, repeat_last=True))
    run = await long_talk(talk, 40)
    assert await compaction.compact(run, "overflow")
    assert answers
    assert not any(answers)


# -- who sums up, and how ----------------------------------------------------------------------------------------------


async def test_another_model_can_sum_up_within_its_own_window():
    other = summing_up(window=5_000)
    talk = Conversation(model_of(window=30_000))
    run = await long_talk(talk, 60)
    assert await Compaction(model=other).compact(run)
    assert len(other.requests) > 1
    assert all(estimate_messages_tokens(request.messages) < 4_000 for request in other.requests)


async def test_a_model_whose_window_nobody_knows_is_given_what_it_has_read_before():
    talk = Conversation(summing_up())
    run = await long_talk(talk, 60)
    await talk.calls(("look", "{}", "seen"), usage=Usage(20_000, 10))
    assert await Compaction().compact(run)
    assert len(talk.model.requests) == 1


async def test_and_never_less_than_most_models_can_read():
    talk = Conversation(summing_up())
    run = await long_talk(talk, 8)
    await talk.calls(("look", "{}", "seen"), usage=Usage(10, 5))
    assert await Compaction().compact(run)
    assert len(talk.model.requests) == 1


async def test_instructions_and_a_focus_are_told_to_whoever_sums_up():
    talk = Conversation()
    run = await long_talk(talk, 20)
    await Compaction(instructions="Keep every depth.").compact(run, focus="The colour of the boat.")
    assert "for this work:\nKeep every depth.\nThe colour of the boat." in talk.model.requests[0].instructions


async def test_keep_recent_asks_nobody():
    talk = Conversation(model_of())
    run = await long_talk(talk, 40)
    assert await Compaction(strategy=keep_recent, keep_recent_messages=4).compact(run)
    first, *rest = run.state.view
    assert "were left out to make room" in first.text
    assert "77 of them are in no summary" in first.text
    assert len(rest) == 4
    assert of(await talk.log(), Compacted)[0].usage is None


async def test_a_strategy_of_ones_own_makes_the_message():
    given: list[int] = []

    async def mine(run: Any, replaced: Any) -> Message:
        given.append(len(replaced))
        return user(f"{len(replaced)} messages about a boat", metadata={"mine": 1})

    talk = Conversation(model_of())
    run = await long_talk(talk, 20)
    assert await Compaction(strategy=mine, keep_recent_messages=2).compact(run)
    first = run.state.view[0]
    assert (first.text, first.origin, first.metadata["mine"]) == ("39 messages about a boat", "compaction", 1)
    assert "/boat/0.txt" in read_summary_data([first]).files.read
    await talk.calls(("look", "{}", "seen"))
    assert await Compaction(strategy=mine, keep_recent_messages=0).compact(run)
    assert given == [39, 5]


async def test_a_strategy_may_leave_everything_as_it_is():
    async def nothing(run: Any, replaced: Any) -> None:
        return None

    talk = Conversation(model_of())
    run = await long_talk(talk, 20)
    assert not await Compaction(strategy=nothing).compact(run)
    assert [kind(event) for event in (await talk.log())[-1:]] == ["compaction_started"]


@pytest.mark.parametrize("made", ["text", user(" "), assistant("x"), 3])
async def test_a_strategy_that_returns_something_else_is_told(made, caplog):
    async def odd(run: Any, replaced: Any) -> Any:
        return made

    run = await long_talk(Conversation(), 20)
    assert not await Compaction(strategy=odd).compact(run)
    assert "it has to return" in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        {"at_fraction": 0},
        {"at_fraction": 1.1},
        {"at_fraction": "x"},
        {"before_tools_fraction": 0},
        {"before_tools_fraction": 1.1},
        {"at_tokens": 0},
        {"at_messages": 3},
        {"at_turns": 0},
        {"keep_recent_tokens": -1},
        {"keep_recent_messages": -1},
        {"keep_recent_messages": 9, "at_messages": 10},
        {"reserve_tokens": 1.5},
        {"model": "openai/gpt"},
        {"instructions": None},
        {"strategy": 3},
    ],
)
def test_what_cannot_work_is_refused(given):
    with pytest.raises(ConfigError, match=rf"Compaction\({next(iter(given))}="):
        Compaction(**given)


@pytest.mark.parametrize(
    ("field", "least"),
    [
        ("at_tokens", 1),
        ("at_messages", 4),
        ("at_turns", 1),
        ("keep_recent_tokens", 0),
        ("keep_recent_messages", 0),
        ("reserve_tokens", 0),
    ],
)
def test_a_number_may_be_exactly_the_least_that_makes_sense(field, least):
    assert getattr(Compaction(**{field: least}), field) == least
    with pytest.raises(ConfigError, match=field):
        Compaction(**{field: least - 1})


@pytest.mark.parametrize(
    ("window", "of_summaries", "answer"),
    [(8_000, None, 1_600), (None, None, 8_192), (8_000, 6_000, 1_200), (20_000, 6_000, 1_200), (60_000, None, 8_192)],
)
async def test_a_summary_is_asked_for_within_the_window_of_the_model_that_writes_it(
    window: int | None, of_summaries: int | None, answer: int
) -> None:
    talk = Conversation(summing_up(window=window))
    run = await long_talk(talk, 20)
    writer = None if of_summaries is None else summing_up(window=of_summaries)
    assert await Compaction(model=writer, keep_recent_messages=4).compact(run)
    requests = (talk.model if writer is None else writer).requests
    assert {each.settings.max_output_tokens for each in requests} == {answer}


@pytest.mark.parametrize(
    ("usage", "requests"),
    [
        (None, 2),
        (Usage(500_000, 5), 1),
        (Usage(500_000, 5, precision="estimated"), 2),
        (Usage(1_000, 5), 2),
    ],
)
async def test_a_model_of_unknown_window_that_has_read_much_is_sent_much_to_sum_up(
    usage: Usage | None, requests: int
) -> None:
    talk = Conversation()
    run = await talk.begin()
    for number in range(100):
        await talk.calls(("read_file", f'{{"path": "/boat/{number}.txt"}}', f"x{number}y" * 1_000))
    await talk.answers("Aye.", usage=usage)
    await talk.says("Go on.")
    assert await Compaction(keep_recent_messages=0).compact(run)
    assert len(talk.model.requests) == requests


async def test_it_is_due_again_at_the_size_from_which_another_try_may_help():
    talk = Conversation()
    run = await long_talk(talk, 20)
    gauge, compaction = get_token_counter(run), Compaction(at_messages=4)
    gauge.quiet_below = gauge.count_context_tokens(run) + 1
    assert compaction.find_cause(run) == ""
    gauge.quiet_below -= 1
    assert compaction.find_cause(run) == "messages"
