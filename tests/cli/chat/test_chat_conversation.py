"""The conversation of a chat: what is sent, steered, cancelled and resumed, and every note about how a run ended."""

import asyncio

import pytest

from perdure import Agent, ConfigError, Message, Outcome, ShuttingDown, StopReason, Text, ToolCall, assistant, user
from perdure._cli.chat.conversation import ChatConversation, keep_partial_reply
from perdure._cli.run.assembly import AgentParts
from perdure._cli.run.model import ModelChoice
from perdure._cli.run.options import METADATA, AgentOptions, RunCommandOptions
from perdure._cli.terminal.screen import CUT_OFF
from perdure.background import Shutdown
from perdure.events import Event, MessageAdded, QuestionAsked, ReplyFinished, RunEnded, RunStarted, TextDelta
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call, pause
from tests.doubles import SECONDS, Held, crashed, kind, rounds

ASKED = QuestionAsked("q", "slot")


class Chat:
    """A conversation in a folder, with what it has shown and noted."""

    def __init__(self, *replies, tools=(), session_id="s", wrap=lambda agent: agent, **options):
        self.store = MemoryStore()
        self.model = ScriptedModel(*replies)
        self.agent = wrap(Agent(self.model, tools=tools, store=self.store))
        parts = AgentParts(choice=ModelChoice("m", ""), options={"model": self.model, "store": "memory:"})
        self.events: list[Event] = []
        self.notes: list[str] = []
        order = RunCommandOptions(session_id=session_id, agent=AgentOptions(context=True), **options)
        self.conversation = ChatConversation(self.agent, parts, order, self._show, self.notes.append)

    async def _show(self, event):
        self.events.append(event)

    async def __aenter__(self):
        await self.agent.__aenter__()
        await self.conversation.open(self.conversation.session)
        return self

    async def __aexit__(self, *_):
        await self.conversation.close()
        await self.agent.__aexit__(None, None, None)

    async def texts(self):
        """The messages of the session, each with its role."""
        return [(each.role, each.text) for each in (await self.conversation.session.read_state()).messages]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    return tmp_path


async def test_a_prompt_begins_a_run_whose_events_are_shown_and_counted(folder):
    changed = []
    async with Chat("Hello.", max_turns=3) as chat:
        conversation = chat.conversation
        assert conversation.session.session_id == "s"
        assert conversation.usage.turns == 0
        conversation.on_session_changed = lambda: changed.append(conversation.session.session_id)
        assert conversation.is_running is False
        assert await conversation.send("Hi / there") is False
        assert conversation.is_running is True
        await conversation.wait()
        assert conversation.is_running is False
        await conversation.close()
        assert [kind(each) for each in chat.events if each.durable] == [
            "run_started", "message_added", "model_requested", "message_added", "run_ended",
        ]  # fmt: skip
        assert conversation.usage.turns == 1
        (prompt, _) = (await conversation.session.read_state()).messages
        assert prompt.text == "Hi / there"
        assert prompt.metadata == {METADATA: {"context": True, "project": str(folder.resolve())}}
        await conversation.open(chat.agent.session("other"))
        assert (changed, conversation.session.session_id, conversation.usage.turns) == (["other"], "other", 0)
    assert chat.notes == []
    assert chat.model.requests[0].settings is not None


async def test_a_new_status_is_reported_when_the_usage_has_changed_and_when_the_run_is_over():
    seen = []
    async with Chat("Hello.") as chat:
        conversation = chat.conversation
        conversation.on_status_changed = lambda: seen.append((conversation.is_running, conversation.usage.turns))
        await conversation.send("Hi.")
        await conversation.wait()
        await conversation.close()
    assert (False, 1) in seen
    assert len(seen) == 3  # the turn and the run have ended, and so has the task


async def test_the_events_of_the_session_before_are_no_longer_shown():
    async with Chat("One.", "Two.") as chat:
        await chat.conversation.open(chat.agent.session("other"))
        await chat.agent.session("s").run("Hi")
        await chat.conversation.send("Hi")
        await chat.conversation.close()
        assert [each.message.text for each in chat.events if isinstance(each, MessageAdded)] == ["Hi", "Two."]


async def test_a_prompt_with_an_unknown_skill_is_noted_and_sent():
    async with Chat("Hello.") as chat:
        await chat.conversation.send("/nothing is here")
        await chat.conversation.wait()
        assert chat.notes == [
            "there is no skill 'nothing', so /nothing is sent as it is; perdure skills list lists them"
        ]
        assert await chat.texts() == [("user", "/nothing is here"), ("assistant", "Hello.")]


async def test_a_message_during_a_run_steers_it():
    held = Held()
    async with Chat(call("held"), "Done.", tools=[held.tool]) as chat:
        conversation = chat.conversation
        await conversation.send("Work.")
        await held.started.wait()
        assert await conversation.send("Faster.") is True
        held.released.set()
        await conversation.wait()
        assert [text for role, text in await chat.texts() if role == "user"] == ["Work.", "Faster."]
        assert chat.notes == []
        assert len([each for each in chat.events if isinstance(each, RunEnded)]) == 1


async def test_a_message_that_came_after_the_last_turn_is_answered_by_a_further_run():
    held = pause()
    async with Chat([TextDelta("One."), held, ReplyFinished()], "Two.") as chat:
        conversation = chat.conversation
        await conversation.send("Work.")
        await held.wait_reached()
        await conversation.send("More.")
        held.release()
        await conversation.wait()
        assert await chat.texts() == [
            ("user", "Work."),
            ("assistant", "One."),
            ("user", "More."),
            ("assistant", "Two."),
        ]
        assert conversation.is_running is False


async def test_a_cancelled_reply_is_kept_for_the_model():
    held = pause()
    async with Chat([TextDelta("Once upon"), held], "More.") as chat:
        conversation = chat.conversation
        assert await conversation.cancel() is False
        await conversation.send("Tell me.")
        await held.wait_reached()
        await conversation.send("Faster.")
        assert await conversation.cancel() is True
        await conversation.wait()
        assert await conversation.cancel() is False
        texts = await chat.texts()
        assert texts[0] == ("user", "Tell me.")
        assert texts[-1] == ("assistant", f"Once upon\n\n{CUT_OFF}")
        assert chat.notes == []


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("done", Message("assistant", (Text("x"),), stop=StopReason.CANCELLED)),
        ("cancelled", None),
        ("cancelled", Message("assistant", (Text(" "),), stop=StopReason.CANCELLED)),
        ("cancelled", Message("assistant", (Text("x"),))),
        ("cancelled", Message("assistant", (Text("x"), ToolCall("c", "t")), stop=StopReason.CANCELLED)),
    ],
)
async def test_no_other_reply_is_kept(status, message):
    session = Agent(ScriptedModel("Hello."), store=MemoryStore()).session("s")
    await session.run("Hi")
    before = await session.read_state()
    await keep_partial_reply(session, Outcome(status=status, message=message))
    await keep_partial_reply(session, None)
    assert (await session.read_state()).messages == before.messages


async def test_errors_of_a_run_are_noted_and_the_chat_goes_on():
    async with Chat(ValueError("odd"), "Hello.") as chat:
        await chat.conversation.send("Hi")
        await chat.conversation.wait()
        assert len(chat.notes) == 1
        assert chat.notes[0].startswith("error: ")
        assert "odd" in chat.notes[0]
        await chat.conversation.send("Again")
        await chat.conversation.wait()
        assert (await chat.texts())[-1] == ("assistant", "Hello.")


async def test_a_session_that_another_drives_is_noted_with_what_to_do():
    async with Chat("Hello.") as chat:
        lease = await chat.store.acquire("s")
        await chat.conversation.send("Hi")
        await chat.conversation.wait()
        await chat.store.release(lease)
    (note,) = chat.notes
    assert note.startswith("error: ")
    assert note.endswith("; wait for it, or begin another session with /session NAME")


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (KeyError("k"), "error: unexpected error; please report it: KeyError: 'k'"),
        (ConfigError("wrong"), "error: wrong"),
    ],
)
async def test_a_run_that_cannot_begin_is_noted_and_what_is_not_foreseen_as_such(monkeypatch, error, note):
    async with Chat("Hello.") as chat:

        def fail(*_, **__):
            raise error

        monkeypatch.setattr(type(chat.conversation.session), "run", fail)
        await chat.conversation.send("Hi")
        await chat.conversation.wait()
    assert chat.notes == [note]


async def test_after_a_signal_nothing_is_noted():
    async with Shutdown(signals=()) as shutdown, Chat("Hello.", wrap=shutdown.wrap_agent) as chat:
        shutdown.begin()
        with pytest.raises(ShuttingDown):
            await chat.conversation.session.run("Hi")
        await chat.conversation.send("Hi")
        await chat.conversation.wait()
        assert chat.notes == []


async def test_a_run_that_was_cut_off_goes_on_and_one_that_has_ended_does_not():
    async with Chat("Hello.", "Again.") as chat:
        conversation = chat.conversation
        assert await conversation.resume() is False
        metadata = AgentOptions().build_prompt_metadata()
        prompt = MessageAdded(user("Hi", metadata=metadata), run_id="r")
        await crashed(chat.store, "s", RunStarted(agent="agent", run_id="r"), prompt)
        assert await conversation.resume() is True
        assert await conversation.resume() is False
        await conversation.wait()
        assert await chat.texts() == [("user", "Hi"), ("assistant", "Hello.")]
        assert await conversation.resume() is False
        assert await conversation.resume(unpark=True) is False
        assert chat.notes == []


async def test_a_run_of_another_program_is_refused():
    async with Chat("Hello.") as chat:
        await crashed(chat.store, "s", RunStarted(run_id="r"), MessageAdded(user("Hi"), run_id="r"))
        with pytest.raises(Exception, match="continue it in the program that began it"):
            await chat.conversation.resume()
        assert chat.conversation.is_running is False


@pytest.mark.parametrize(
    ("outcome", "notes"),
    [
        (None, []),
        (Outcome(status="done", message=assistant("Hi")), []),
        (
            Outcome(status="parked"),
            ["the run was parked, because it crashed again and again; /resume goes on with it"],
        ),
        (Outcome(status="waiting"), []),
        (Outcome(status="waiting", questions=(ASKED,)), ["the run waits for an answer; /resume asks again"]),
        (Outcome(status="done", questions=(ASKED,)), []),
        (Outcome(status="failed", error=ConfigError("wrong")), ["error: wrong"]),
    ],
)
async def test_how_a_run_ended_is_noted(monkeypatch, outcome, notes):
    async with Chat("Hello.") as chat:

        async def run(*_, **__):
            return outcome

        monkeypatch.setattr(type(chat.conversation.session), "run", run)
        await chat.conversation.send("Hi")
        await chat.conversation.wait()
    assert chat.notes == notes


async def test_a_prompt_that_is_typed_while_a_cancelled_run_ends_begins_a_run_of_its_own():
    held = Held(abortable=False)
    async with Chat(call("held"), "Hello.", tools=[held.tool]) as chat:
        conversation = chat.conversation
        await conversation.send("Go.")
        await held.started.wait()
        assert await conversation.send("Use blue.")
        assert conversation.can_be_steered
        assert await conversation.cancel()
        assert conversation.is_running
        assert not conversation.can_be_steered
        sending = asyncio.ensure_future(conversation.send("What now?"))
        await rounds()
        held.released.set()
        assert await asyncio.wait_for(sending, SECONDS) is False
        await conversation.wait()
        said = [text for role, text in await chat.texts() if role == "user"]
        assert said == ["Go.", "Use blue.", "What now?"]
        assert (await chat.texts())[-1] == ("assistant", "Hello.")


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_prompts_that_are_typed_one_after_the_other_keep_their_order(is_cancelled):
    held = Held(abortable=False)
    async with Chat(call("held"), "Hello.", "Aye.", tools=[held.tool]) as chat:
        conversation = chat.conversation
        if is_cancelled:
            await conversation.send("Go.")
            await held.started.wait()
            await conversation.cancel()
        typed = ("What now?", "And then?", "And last?")
        sending = [asyncio.ensure_future(conversation.send(each)) for each in typed]
        await rounds()
        held.released.set()
        await asyncio.wait_for(asyncio.gather(*sending), SECONDS)
        while conversation.is_running:
            await conversation.wait()
        said = [text for role, text in await chat.texts() if role == "user"]
        assert said == [*(["Go."] if is_cancelled else []), *typed]


async def test_a_run_that_is_cancelled_before_it_has_begun_is_cancelled():
    held = Held()
    async with Chat(call("held"), "Hello.", tools=[held.tool]) as chat:
        await chat.conversation.send("Go.")
        is_cancelled = await chat.conversation.cancel()
        held.released.set()
        await chat.conversation.wait()
        assert is_cancelled
        assert [text for role, text in await chat.texts() if role == "assistant" and text] == []
