"""A message with what it asks for done."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ConfigError, Image, Message, Text, assistant, user
from perdure._context.directives.apply import _replace_text, apply_directives
from perdure.context import Command, CommandFailed, MentionSettings, Rewrite, ShortCircuit
from perdure.events import HookInvoked, SkillLoaded


def skills(**texts: str):
    """Tells what a skill says, by name."""

    def skill_text(name: str, arguments: str) -> str | None:
        return f"{texts[name]} {arguments}".strip() if name in texts else None

    return skill_text


def noting(seen: list, answer=None):
    """A handler that writes down what it is given."""

    def handler(context):
        seen.append(context)
        return answer

    return handler


async def test_a_message_without_directives_is_returned_as_it_is():
    message = user("What is 1/2, @you?")
    done = await apply_directives(message, commands=[Command("a", print)], skill_text=skills(b="B"))
    assert done.messages == (message,)
    assert done.messages[0] is message
    assert (done.answer, done.events, done.notes) == (None, (), ())


async def test_hooks_are_called_in_order_and_as_often_as_they_are_written():
    seen: list = []
    done = await apply_directives(
        user("/b one\n/a two /nobody\n/b three"),
        commands=[Command("a", noting(seen)), Command("b", noting(seen))],
        controls="me",
    )
    assert [(each.name, each.arguments) for each in seen] == [("b", "one"), ("a", "two /nobody"), ("b", "three")]
    assert {each.text for each in seen} == {"[/b] one\n[/a] two /nobody\n[/b] three"}
    assert {each.original for each in seen} == {"/b one\n/a two /nobody\n/b three"}
    assert {each.controls for each in seen} == {"me"}
    assert done.events == (HookInvoked("b"), HookInvoked("a"), HookInvoked("b"))
    (message,) = done.messages
    assert message.text == "[/b] one\n[/a] two /nobody\n[/b] three"
    assert message.original_text == "/b one\n/a two /nobody\n/b three"


async def test_a_rewrite_is_what_the_next_hook_and_the_model_see():
    seen: list = []
    hooks = [Command("shout", lambda context: Rewrite(context.text.upper())), Command("look", noting(seen))]
    done = await apply_directives(user("/shout please /look"), commands=hooks)
    assert seen[0].text == done.messages[0].text == "[/SHOUT] PLEASE [/LOOK]"
    assert seen[0].original == done.messages[0].original_text == "/shout please /look"


async def test_what_a_hook_writes_may_ask_for_skills_and_files_but_not_for_hooks(tmp_path):
    (tmp_path / "log.txt").write_text("calm", encoding="utf-8")
    hooks = [Command("morning", lambda _: Rewrite("/brief Oslo\n/morning @log.txt"))]
    done = await apply_directives(
        user("/morning"), commands=hooks, skill_text=skills(brief="Be brief."), mentions=MentionSettings(tmp_path)
    )
    skill, message = done.messages
    assert skill == user("Be brief. Oslo", origin="skill", metadata={"skill": "brief"})
    assert message.text.startswith("[/brief] Oslo\n/morning @log.txt\n\n[Files")
    assert "--- @log.txt ---\ncalm\n" in message.text
    assert done.events == (HookInvoked("morning"), SkillLoaded("brief", "user", "Oslo"))


async def test_an_answer_ends_it(tmp_path):
    seen: list = []
    hooks = [Command("cost", lambda _: ShortCircuit("Four crowns.")), Command("late", noting(seen))]
    done = await apply_directives(
        user("/cost /late /brief @a"), commands=hooks, skill_text=skills(brief="B"), mentions=MentionSettings(tmp_path)
    )
    assert done.answer == Message("assistant", assistant("Four crowns.").parts, origin="hook")
    assert [each.text for each in done.messages] == ["[/cost] [/late] /brief @a"]
    assert (done.events, done.notes, seen) == ((HookInvoked("cost"),), (), [])


async def test_skills_stand_in_front_and_a_hook_has_its_name_first():
    seen: list = []
    done = await apply_directives(
        user("Use /b twice: /b now\n/c"), commands=[Command("c", noting(seen))], skill_text=skills(b="Be.", c="See.")
    )
    assert [each.text for each in done.messages] == ["Be. twice: /b now", "Be. now", "Use [/b] twice: [/b] now\n[/c]"]
    assert [each.origin for each in done.messages] == ["skill", "skill", ""]
    assert len(seen) == 1


async def test_files_stand_after_the_message_and_agents_stay_in_it(tmp_path):
    (tmp_path / "a.txt").write_text("hello", encoding="utf-8")
    (tmp_path / "helper").write_text("never read", encoding="utf-8")
    done = await apply_directives(
        user("@helper: read @a.txt, not @@b or @c"), mentions=MentionSettings(tmp_path), agents={"helper"}
    )
    (message,) = done.messages
    assert message.parts[0] == Text("@helper: read @a.txt, not @b or @c")
    assert message.original_text == "@helper: read @a.txt, not @@b or @c"
    assert "--- @a.txt ---\nhello\n--- end of @a.txt ---" in message.text
    assert "never read" not in message.text
    assert done.notes == ("@c is not attached: there is no such file",)
    assert message.metadata == {"not_attached": [*done.notes]}


async def test_pictures_stay_where_they_are():
    image, other = Image(url="one"), Image(url="two")
    message = user([image, "Compare /a", other, "with /a"])
    done = await apply_directives(message, commands=[Command("a", lambda _: None)])
    assert done.messages[0].parts == (image, Text("Compare [/a]"), other, Text("with [/a]"))
    done = await apply_directives(message, commands=[Command("a", lambda _: Rewrite("Both."))])
    assert done.messages[0].parts == (image, Text("Both."), other)


async def test_what_a_message_has_besides_its_words_is_kept():
    message = Message("user", (Text("/a"),), origin="channel", original_text="typed", metadata={"by": 1})
    done = await apply_directives(message, commands=[Command("a", lambda _: None)])
    assert done.messages == (Message("user", (Text("[/a]"),), "channel", original_text="typed", metadata={"by": 1}),)


async def test_a_hook_that_fails_fails_it_all():
    def fail(_):
        raise ValueError("no such port")

    with pytest.raises(CommandFailed, match="/sail failed, and the message was not sent: ValueError: no such port"):
        await apply_directives(user("/sail"), commands=[Command("sail", fail)])


async def test_two_hooks_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two commands"):
        await apply_directives(user("Hi"), commands=[Command("a", print), Command("a", print)])


async def test_what_hooks_and_skills_say_can_be_stored():
    done = await apply_directives(
        user("/a /b"), commands=[Command("a", lambda _: Rewrite("\ud800 /b"))], skill_text=skills(b="\udfff")
    )
    assert [each.text for each in done.messages] == ["\ufffd", "\ufffd [/b]"]


@given(text=st.text() | st.text('/@ab "`~\n.', max_size=80))
async def test_no_text_raises_and_what_was_typed_is_kept(tmp_path_factory, text):
    mentions = MentionSettings(tmp_path_factory.getbasetemp())
    hooks = [Command("a", lambda context: Rewrite(f"{context.text}!"))]
    done = await apply_directives(user(text), commands=hooks, skill_text=skills(b="B"), mentions=mentions)
    said = done.messages[-1]
    assert (said.original_text or said.text) == text
    assert bool(said.original_text) == (said.parts != user(text).parts)
    plain = await apply_directives(user(text))
    assert plain.messages == (user(text),)


def test_the_text_of_a_command_comes_before_images_where_there_was_no_text():
    image = Image(b"x", "image/png")
    assert _replace_text((image, image), "new") == (Text("new"), image, image)
    assert _replace_text((image, Text("a"), image, Text("b")), "new") == (image, Text("new"), image)
