"""The message that stands for the beginning of a conversation."""

import pytest

from perdure import Status, Text, ToolResult, tool_message, user
from perdure._context.history.search_tools import search_history
from perdure._context.history.summary import (
    SummaryCarryOver,
    build_summary_message,
    collect_skill_texts,
    read_summary_data,
)
from perdure._context.history.tokens import (
    SUMMARY_ORIGIN,
    cut_middle_to_tokens,
    estimate_message_tokens,
    estimate_text_tokens,
)
from perdure.events import InboxAdded, RunEnded, SkillLoaded, ValueKept
from tests.context.conversation import Conversation, long_talk

ROOM = 4000


async def test_it_says_what_it_is_and_quotes_the_request():
    talk = Conversation()
    run = await long_talk(talk, 3)
    await talk.says("The red one!", origin="steering")
    await talk.says("You repeat yourself.", origin="guardrail")
    message = build_summary_message(run, run.state.view[:], len(run.state.messages), ROOM, "## Goal\nMoor.")
    assert (message.role, message.origin) == ("user", SUMMARY_ORIGIN)
    assert message.text.startswith("[Earlier messages of this conversation were summed up")
    assert "word for word\nPlease moor the boat.\n\nThe red one!\n\n## Goal\nMoor." in message.text
    assert "repeat yourself" not in message.text
    assert message.text.endswith("goes on from here.]")
    assert "search_history" not in message.text


@pytest.mark.parametrize(("room", "share"), [(4000, 0.7), (160, 0.2)])
async def test_a_snapshot_has_the_room_that_nothing_else_takes_and_a_quarter_in_any_case(room, share):
    talk = Conversation()
    run = await talk.begin("Moor the boat " * 400)
    snapshot = "berth " * room  # more than there is room for
    message = build_summary_message(run, run.state.view[:], len(run.state.messages), room, snapshot)
    assert estimate_text_tokens("berth " * message.text.count("berth ")) >= room * share


async def test_of_a_request_that_is_too_long_the_beginning_and_the_last_words_matter_most():
    talk = Conversation()
    run = await talk.begin("first " * 5000)
    await talk.says("The red one, please.", origin="steering")
    text = build_summary_message(run, run.state.view[:], 2, 600, "Moor.").text
    assert "first" in text
    assert "The red one, please." in text
    assert "characters left out" in text
    await talk.says("last " * 5000, origin="steering")
    text = build_summary_message(run, run.state.view[:], 3, 600, "Moor.").text
    assert "first" in text
    assert "last" in text
    assert "The red one" not in text


async def test_a_request_that_is_answered_is_not_quoted():
    talk = Conversation()
    run = await long_talk(talk, 3)
    await run.emit(RunEnded("done", run_id="r1"))
    assert "word for word" not in build_summary_message(run, run.state.view[:], 7, ROOM, "Moor.").text


async def test_tasks_inbox_and_files_are_carried_over():
    talk = Conversation(tools=[search_history])
    run = await long_talk(talk, 3)
    await talk.calls(("write_file", '{"path": "/boat/log.txt"}', "ok"))
    tasks = [{"content": "Tie the rope", "status": "pending"}, {"content": "Buy rope", "status": "completed"}, "Paint"]
    await run.emit(
        InboxAdded("i1", "harbour", "A berth for 12 metres", run_id="r1"),
        ValueKept("tasks", tasks, run_id="r1"),
        ValueKept("todos", {"title": "Sail"}, run_id="r1"),
    )
    text = build_summary_message(run, run.state.view[:], 9, ROOM, "Moor.").text
    assert "## Open tasks\n- [pending] Tie the rope\n- Paint\n- Sail" in text
    assert "Buy rope" not in text
    assert "## Still waiting for\n- [harbour] A berth for 12 metres" in text
    assert "## Files modified\n- /boat/log.txt" in text
    assert "## Files read\n- /boat/2.txt\n- /boat/1.txt\n- /boat/0.txt" in text
    assert "`search_history`" in text


async def test_files_that_there_is_no_room_for_are_counted():
    talk = Conversation()
    run = await long_talk(talk, 60)
    assert "that were touched earlier)" in build_summary_message(run, run.state.view[:], 121, 1000, "Moor.").text


async def test_skills_are_carried_over_from_summary_to_summary():
    talk = Conversation()
    run = await talk.begin()
    await talk.says("Tie a bowline.", origin="skill", skill="knots")
    await talk.calls(("skill", '{"name": "paint"}', '<skill name="paint">\nTwo coats.\n</skill>'))
    await run.emit(SkillLoaded("flags", run_id="r1"))
    first = build_summary_message(run, run.state.view[:], 4, ROOM, "Moor.")
    assert "### flags\n(Loaded earlier" in first.text
    assert '### knots\nTie a bowline.\n### paint\n<skill name="paint">\nTwo coats.' in first.text
    second = build_summary_message(run, [first, user("And then?")], 5, ROOM, "Moor.")
    assert "### knots\nTie a bowline." in second.text


async def test_a_skill_that_there_is_no_room_for_keeps_its_name():
    talk = Conversation()
    run = await talk.begin()
    await talk.says("Tie a bowline. " * 500, origin="skill", skill="knots")
    message = build_summary_message(run, run.state.view[:], 2, 600, "Moor.")
    assert "### knots\n(Loaded earlier" in message.text


def test_only_the_text_of_a_skill_is_carried_over():
    def told(text: str, status: Status = Status.OK, name: str = "skill") -> dict[str, str]:
        return collect_skill_texts([tool_message([ToolResult("c", name, (Text(text),), status)])])

    frame = '<skill name="knots">\nTie.\n</skill>'
    assert told(frame) == {"knots": frame}
    assert told(frame, Status.ERROR) == told(frame, name="shell") == told("Skill 'knots' is loaded already.") == {}
    assert collect_skill_texts([user("body", origin="skill")]) == {"skill 1": "body"}


async def test_a_second_one_takes_over_what_the_first_has_carried():
    talk = Conversation()
    run = await long_talk(talk, 3)
    first = build_summary_message(run, run.state.view[:3], 3, ROOM, "First.")
    second = build_summary_message(run, [first, *run.state.view[3:]], 7, ROOM, "Second.")
    assert read_summary_data([second]).files.read == ("/boat/0.txt", "/boat/1.txt", "/boat/2.txt")
    assert read_summary_data([second]).snapshot == "Second."


async def test_without_a_snapshot_it_says_what_is_missing_and_keeps_the_earlier_one():
    talk = Conversation()
    run = await long_talk(talk, 3)
    first = build_summary_message(run, run.state.view[:4], 4, ROOM, "First.")
    second = build_summary_message(run, [first, *run.state.view[4:]], 7, ROOM, None)
    assert "were left out to make room, and could not be summed up. 3 of them are in no summary." in second.text
    assert "First." in second.text
    third = build_summary_message(run, [second, user("x")], 8, ROOM, "Third.")
    assert read_summary_data([third]) == SummaryCarryOver("Third.", read_summary_data([second]).files, {}, 3)
    assert "3 of them are in no summary." in third.text


@pytest.mark.parametrize("room", [200, 500, 2000, 8000])
async def test_it_is_not_larger_than_the_room_for_it(room):
    talk = Conversation()
    run = await long_talk(talk, 40)
    await talk.says("Tie a bowline. " * 300, origin="skill", skill="knots")
    await talk.says("Now quickly. " * 300)
    await run.emit(
        *[InboxAdded(f"i{number}", "mail", "an answer " * 20, run_id="r1") for number in range(20)],
        ValueKept("tasks", [{"content": "task " * 20, "status": "pending"}] * 20, run_id="r1"),
    )
    message = build_summary_message(run, run.state.view[:], 83, room, "snapshot " * 5000)
    assert estimate_message_tokens(message) <= room * 1.2 + 100


@pytest.mark.parametrize("metadata", [{}, {SUMMARY_ORIGIN: 3}, {SUMMARY_ORIGIN: {"files": 3}}])
def test_the_words_of_a_summary_of_somebody_elses_making_are_its_snapshot(metadata):
    assert read_summary_data([user("Mine.", origin=SUMMARY_ORIGIN, metadata=metadata)]) == SummaryCarryOver("Mine.")


def test_a_conversation_without_a_summary_carries_nothing():
    assert read_summary_data([]) == read_summary_data([user("x")]) == SummaryCarryOver()


async def test_each_part_has_its_share_of_the_room():
    talk = Conversation()
    run = await talk.begin("Moor the boat. " * 400)
    for number in range(10, 40):
        await talk.calls(("read_file", f'{{"path": "/boat/{number}.tx"}}', "seen"))
        await talk.calls(("write_file", f'{{"path": "/bow/{number}.txt"}}', "ok"))
    request, berth, tie = "Moor the boat. " * 400, "A berth for 12 metres. " * 50, "Tie the rope. " * 50
    await run.emit(
        InboxAdded("i1", "harbour", berth, run_id="r1"),
        ValueKept("tasks", [{"content": tie, "status": "pending"}], run_id="r1"),
    )
    room = 1536
    text = build_summary_message(run, run.state.view[:], len(run.state.messages), room, "Moored.").text
    _, *parts = text.split("\n\n## ")
    assert parts == [
        "The request that is being worked on, word for word\n"
        + cut_middle_to_tokens(request.strip(), room // 5)
        + "\n\nMoored.",
        "Open tasks\n" + cut_middle_to_tokens(f"- [pending] {tie}", room // 12),
        "Still waiting for\n" + cut_middle_to_tokens(f"- [harbour] {berth}", room // 12),
        "\n".join(
            [
                "Files modified",
                *[f"- /bow/{number}.txt" for number in range(39, 18, -1)],  # 6 tokens each, of 128
                "(and 9 that were touched earlier)",
            ]
        ),
        "\n".join(
            [
                "Files read",
                *[f"- /boat/{number}.tx" for number in range(39, 23, -1)],  # 6 tokens each, of 96
                "(and 14 that were touched earlier)\n\n[End of the summary. The conversation goes on from here.]",
            ]
        ),
    ]


def fill_tokens(name: str, size: int) -> str:
    """A text of so many tokens, together with its name."""
    text = "x"
    while estimate_text_tokens(text) + estimate_text_tokens(name) < size:
        text += "x"
    return text


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([60, 40], ["a", "b"]),
        ([61, 40], ["b"]),
        ([50, 100], ["b"]),
        ([40, 61], ["b"]),
        ([100, 101], ["a"]),
        ([101, 100], ["b"]),
        ([50, 101, 50], ["a", "c"]),
    ],
)
async def test_as_many_skills_as_fit_keep_their_text_the_latest_first(sizes: list[int], kept: list[str]) -> None:
    talk = Conversation()
    run = await talk.begin()
    texts = {name: fill_tokens(name, size) for name, size in zip("abc", sizes, strict=False)}
    for name, text in texts.items():
        await talk.says(text, origin="skill", skill=name)
    message = build_summary_message(run, run.state.view[:], len(run.state.messages), 600, "Moor.")
    carried = read_summary_data([message]).skills
    assert carried == {name: text if name in kept else "" for name, text in texts.items()}
    assert [*carried] == [*texts]
