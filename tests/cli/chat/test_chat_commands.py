"""The commands of a chat: everything that each prints, what it changes, and what its argument can be completed to."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure import Agent, ConfigError, Overrides, Permissions, Usage, UsageError, allow, ask, tool, user
from perdure._cli.chat import commands as chat_commands
from perdure._cli.chat.commands import COMMANDS, ChatCommands
from perdure._cli.run.options import AgentOptions
from perdure._cli.sessions.choice import get_project_path, shorten_id
from perdure.context import Command, Compaction, Role, Skill, Skills
from perdure.events import ReplyFinished, TextDelta
from perdure.permissions import Verdict
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.tools import RestoredFile


@pytest.mark.parametrize(
    ("command", "completions"),
    [
        ("model", ["acme:small", "local"]),
        ("role", ["scout", "writer"]),
        ("permissions", ["revoke"]),
        ("help", []),
        ("", []),
    ],
)
def test_arguments_are_what_there_is_to_choose_from(monkeypatch, command, completions):
    statuses = [
        SimpleNamespace(name="acme", default_model="small", available=True),
        SimpleNamespace(name="other", default_model="large", available=False),
        SimpleNamespace(name="local", default_model="", available=True),
    ]
    monkeypatch.setattr(chat_commands, "list_provider_statuses", lambda: statuses)
    roles = [SimpleNamespace(name="scout"), SimpleNamespace(name="writer")]
    commands = ChatCommands.__new__(ChatCommands)
    commands._chat = cast("Any", SimpleNamespace(agent=SimpleNamespace(all_roles=lambda: roles)))
    assert commands.list_arguments(command) == completions


# -- commands ----------------------------------------------------------------------------------------------------------


class Chat:
    """A chat without a terminal: a real session, and all that its commands have printed."""

    def __init__(self, agent, session_id="one"):
        self.agent = agent
        self.session = agent.session(session_id)
        self.overrides = Overrides[Any]()
        self.is_running = False
        self.store = "memory:"
        self.model_name = "acme:\nsmall"
        self.rules = [ask("wipe"), allow("read")]
        self.last_answer = ""
        self.printed: list[object] = []
        self.shown: list[str] = []
        self.answers: list[str | None] = []
        self.asked: list[str] = []
        self.results = {1}
        self.can_resume = False
        self.copied = ""
        self.offered: list[str] = []
        self.resumed: list[bool] = []
        self.is_closed = False

    def note(self, text):
        self.printed.append(f"- {text}")

    def print_rows(self, rows):
        self.printed += rows

    def show_command(self, text):
        self.shown.append(text)

    def show_result(self, number):
        return number is None or number in self.results

    def offer_prompt(self, text):
        self.offered.append(text)

    def copy_text(self, text):
        self.copied = text

    async def ask(self, question):
        self.asked.append(question)
        return self.answers.pop(0)

    async def open_session(self, session):
        self.session = session

    async def resume(self, *, unpark=False):
        self.resumed.append(unpark)
        return self.can_resume

    def close(self):
        self.is_closed = True

    async def type(self, text):
        """Carry out a command, and return what was printed."""
        self.printed.clear()
        assert await ChatCommands(cast("Any", self)).call(text) is True
        return self.printed


@tool
def look(place: str) -> str:
    """Look at a place.

    It is not changed.
    """
    return place


@pytest.fixture
async def chat(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    agent = Agent(
        ScriptedModel("Reply.", repeat_last=True),
        tools=[look],
        roles=[Role("scout", "Look around.", description="Looks."), Role("writer", "Write.")],
        compaction=Compaction(),
        store=MemoryStore(),
    )
    async with agent:
        yield Chat(agent)


def prompt(text):
    return user(text, metadata=AgentOptions().build_prompt_metadata(get_project_path()))


async def refuse(chat, text):
    """Carry out a command that is refused, and return the error."""
    with pytest.raises(UsageError) as raised:
        await chat.type(text)
    return str(raised.value)


WORKING = "the agent is working: wait for it, or cancel it with Esc"


async def test_what_is_no_command_is_a_prompt_and_a_wrong_name_is_refused(chat):
    commands = ChatCommands(chat)
    for text in ("hello", " /help", "/", "/1", "/tmp/file is there"):
        assert await commands.call(text) is False
    assert (chat.printed, chat.shown) == ([], [])
    with pytest.raises(UsageError) as raised:
        await commands.call("/nothing at all")
    assert str(raised.value) == (
        "there is no command or skill /nothing; /help lists the commands. To send it as it is, begin with a blank"
    )
    with pytest.raises(UsageError, match="there is no command or skill /copy"):
        await ChatCommands(chat, without=("copy",)).call("/copy")


@pytest.mark.parametrize("text", ["/quit", "/exit", "/q", "/quit \n"])
async def test_a_chat_is_left_by_each_of_its_names(chat, text):
    assert await chat.type(text) == []
    assert (chat.is_closed, chat.shown) == (True, [text])


async def test_help_lists_the_commands_that_there_are_and_the_keys(chat):
    assert await ChatCommands(chat, {"Enter": "send"}, without=set(COMMANDS) - {"help", "copy"}).call("/help") is True
    assert chat.printed == [
        "| /help: show the commands and keys",
        "| /copy: copy the last answer to the clipboard of the terminal",
        "| Enter: send",
    ]


async def test_the_model_is_shown_and_changed_for_the_next_run(chat):
    assert await chat.type("/model") == ["- the model is acme:␊small"]
    assert await chat.type("/model demo") == ["- the next model is demo"]
    assert chat.overrides == {"model": "demo"}
    assert await chat.type("/model") == ["- the model is demo"]
    with pytest.raises(ConfigError):
        await chat.type("/model nothing:x")
    assert chat.overrides == {"model": "demo"}


async def test_roles_are_listed_and_one_is_chosen_for_the_next_run(chat):
    assert await chat.type("/role") == ["| scout: Looks.", "| writer", "- role: none"]
    assert await chat.type("/role scout") == ["- the next run has the role scout"]
    assert chat.overrides == {"role": "scout"}
    assert (await chat.type("/role"))[-1] == "- role: scout"
    with pytest.raises(ConfigError):
        await chat.type("/role nobody")


async def test_a_session_is_shown_and_another_is_opened(chat):
    assert await chat.type("/session") == ["- session one, 0 entries"]
    await chat.agent.session("two").run("Say\tsomething.")
    assert await chat.type("/session two") == ['- session two, 5 entries: "Say something."']
    assert chat.session.session_id == "two"
    chat.is_running = True
    assert await refuse(chat, "/session") == WORKING


async def test_an_open_run_is_gone_on_with_and_nothing_is_asked(chat):
    chat.can_resume = True
    assert await chat.type("/resume") == []
    assert (chat.resumed, chat.asked, chat.session.session_id) == ([True], [], "one")
    await chat.agent.session("two").run("Hi")
    assert await chat.type("/resume two") == []
    assert (chat.resumed, chat.asked, chat.session.session_id) == ([True], [], "two")
    chat.is_running = True
    assert await refuse(chat, "/resume") == WORKING


async def test_an_earlier_session_of_the_project_is_chosen_by_its_number(chat):
    assert await chat.type("/resume") == ["- there is no other session of this project yet"]
    for name in ("two", "three"):
        await chat.agent.session(name).run(prompt(f"Hello {name}."))
    await chat.session.run(prompt("Here."))
    await chat.agent.session("elsewhere").run("Hi")
    rows = ["| 1 three: Hello three.", "| 2 two: Hello two."]
    for answer in ("", "  ", None):
        chat.answers = [answer]
        assert await chat.type("/resume") == rows
        assert chat.session.session_id == "one"
    assert chat.asked == ["Which? 1 to 2, or Enter for none: "] * 3
    for answer in ("0", "3", "x", "²"):
        chat.answers = [answer]
        assert await refuse(chat, "/resume") == f"{answer!r} is none of the numbers"
    chat.answers = [" 2 "]
    await chat.type("/resume")
    assert chat.session.session_id == "two"
    chat.answers = ["1"]
    assert (await chat.type("/resume"))[1].startswith("| 2 ")


async def test_at_most_ten_sessions_are_offered(chat):
    for number in range(12):
        await chat.agent.session(f"s{number}").run(prompt("Hello."))
    chat.answers = [""]
    assert len(await chat.type("/resume")) == 10
    assert chat.asked == ["Which? 1 to 10, or Enter for none: "]


async def test_a_fork_leaves_out_prompts_and_offers_the_first_of_them(chat):
    for text in ("First.", "Second.", "Third."):
        await chat.session.run(text)
    original = chat.session
    assert await chat.type("/fork") == [
        f"- this is a fork, {shorten_id(chat.session.session_id)}; files are as they were"
    ]
    assert chat.offered == [""]
    for given, offered, left in (("0", "", 6), ("1", "Third.", 4), ("2", "Second.", 2), ("3", "First.", 0)):
        chat.session = original
        await chat.type(f"/fork {given}")
        assert chat.session.session_id != original.session_id
        assert chat.offered[-1] == offered
        assert len((await chat.session.read_state()).messages) == left
    chat.session = original
    assert await refuse(chat, "/fork 4") == "/fork 4: the session has 3 prompts"
    for wrong in ("x", "-1", "²"):
        assert await refuse(chat, f"/fork {wrong}") == (
            f"/fork {wrong}: give the number of prompts to leave out, or nothing"
        )
    chat.is_running = True
    assert await refuse(chat, "/fork") == WORKING


async def test_a_short_conversation_is_not_compacted(chat):
    assert await chat.type("/compact") == ["- the conversation is too short to compact"]
    chat.is_running = True
    assert await refuse(chat, "/compact") == WORKING


async def test_usage_is_listed(chat):
    rows = await chat.type("/usage")
    assert (rows[0], rows[-1]) == ("| turns: 0", "- nothing was asked yet")
    reply = ReplyFinished(usage=Usage(1200, 34, cache_read_tokens=900, cache_write_tokens=5, reasoning_tokens=7))
    await Agent(ScriptedModel([TextDelta("Hi"), reply]), store=chat.session.store).session("one").run("Hello.")
    assert await chat.type("/usage") == [
        "| turns: 1",
        "| input: 1,200 tokens, of which 900 from the cache and 5 written to it",
        "| output: 34 tokens, of which 7 for thinking",
        "| last request: 1,200 tokens",
        "| cost: not known",
        "| counts: exact",
        "- 1.2k in, 75% cached, 34 out",
    ]


async def test_tools_and_skills_are_listed(chat):
    assert await chat.type("/tools") == ["| look: Look at a place."]
    none = "- there are no skills; perdure skills list says why, and perdure init makes a sample"
    assert await chat.type("/skills") == [none]
    chat.agent = Agent(ScriptedModel(), skills=Skills([Skill(name="knots", description="How to tie.", body="Tie.")]))
    assert await chat.type("/skills") == ["| /knots: How to tie."]
    assert await chat.type("/tools") != ["| none: this agent has no tools"]
    assert await ChatCommands(chat).call("/knots now") is False
    chat.agent = Agent(ScriptedModel(), commands=[Command("deploy", lambda _: None)])
    assert await ChatCommands(chat).call("/deploy now") is False
    assert await refuse(chat, "/other deploy") == (
        "there is no command or skill /other; /help lists the commands. To send it as it is, begin with a blank"
    )
    assert await chat.type("/tools") == ["| none: this agent has no tools"]


@pytest.mark.parametrize("way", ["undo", "redo"])
async def test_without_changes_there_is_nothing_to_restore(chat, tmp_path, way):
    chat.store = f"sqlite:{tmp_path}/sessions.db"
    assert await chat.type(f"/{way}") == [f"- there is nothing to {way}"]
    chat.is_running = True
    assert await refuse(chat, f"/{way}") == WORKING


async def test_rules_are_listed_and_grants_are_revoked(chat):
    assert await chat.type("/permissions") == [f"| rule 1: {chat.rules[0]}", f"| rule 2: {chat.rules[1]}"]
    chat.rules = []
    assert await chat.type("/permissions") == [
        "| none: there are no rules and no grants: tools that change something ask"
    ]

    async def agree(requests):
        return [Verdict(allow=True, scope="session", covers="tool") for _ in requests]

    gate = Permissions(ask("look"), handler=agree)
    model = ScriptedModel(call("look", place="x"), "Done.")
    chat.session = chat.agent.replace(model=model, permission=gate).session("two")
    await chat.session.run("Look.")
    (grant,) = await chat.session.grants()
    assert await chat.type("/permissions") == [f"| {grant.grant_id}: session: {grant.rule}"]
    assert await chat.type(f"/permissions revoke  {grant.grant_id}") == [
        f"-  {grant.grant_id} is revoked: the next such call is asked about again"
    ]
    assert await chat.session.grants() == []
    assert await refuse(chat, "/permissions revoke g1") == "there is no grant 'g1'; /permissions lists them"
    for wrong in ("revoke", "give g1"):
        assert await refuse(chat, f"/permissions {wrong}") == "give nothing, or: /permissions revoke GRANT"


@pytest.mark.parametrize(("given", "found"), [("", True), ("1", True), ("2", False), ("x", False), ("²", False)])
async def test_a_result_is_shown_by_its_number(chat, given, found):
    if found:
        assert await chat.type(f"/show {given}".strip()) == []
    else:
        assert await refuse(chat, f"/show {given}") == (
            "there is no such tool result; /show shows the last one, /show N the one of that number"
        )


async def test_the_last_answer_is_copied_as_far_as_terminals_take_it(chat):
    assert await refuse(chat, "/copy") == "there is no answer to copy yet"
    chat.last_answer = "Answer."
    assert await chat.type("/copy") == ["- 7 characters were sent to the clipboard of the terminal (OSC 52)"]
    assert chat.copied == "Answer."
    chat.last_answer = "x" * 100_001
    assert await chat.type("/copy") == ["- 100,000 characters were sent to the clipboard of the terminal (OSC 52)"]
    assert chat.copied == "x" * 100_000


@pytest.mark.parametrize(("command", "restored"), [("/undo", True), ("/redo", False)])
async def test_what_was_restored_and_what_was_not_is_noted(chat, monkeypatch, command, restored):
    done = [
        RestoredFile(path="a.txt", status="restored", digest=""),
        RestoredFile(path="b\n.txt", status="conflict", digest="", reason="others changed it"),
    ]

    class History:
        async def undo(self, *, overwrite):
            asked.append(overwrite)
            return done

        async def redo(self, *, overwrite):
            asked.append(overwrite)
            return done

    async def list_commands(history, files):
        assert isinstance(history, History)
        assert files == done
        return [
            SimpleNamespace(line="make\nall", not_recorded=("it ran in the background",)),
            SimpleNamespace(line="rm x", not_recorded=("x (git ignores it)", "y")),
        ]

    asked: list[bool] = []
    monkeypatch.setattr(chat_commands, "open_file_history", lambda *_: History())
    monkeypatch.setattr(chat_commands, "list_commands_since", list_commands)
    left = [
        "- cannot be undone: make␊all  (not recorded: it ran in the background)",
        "- cannot be undone: rm x  (not recorded: x (git ignores it); y)",
    ]
    left = left if restored else []
    assert await chat.type(command) == [
        "- restored  a.txt",
        "- conflict  b␊.txt: others changed it",
        f"- {command} overwrite restores files that others have changed too; what was there is kept",
        *left,
    ]
    done = [RestoredFile(path=f"{number}.txt", status="restored", digest="") for number in range(60)]
    shown = await chat.type(f"{command} overwrite")
    assert (shown[49], shown[50], len(shown)) == ("- restored  49.txt", "- and 10 more files", 51 + len(left))
    done = []
    assert await chat.type(command) == [f"- there is nothing to {command[1:]}", *left]
    assert asked == [False, True, False]
    with pytest.raises(UsageError, match="give nothing, or: "):
        await chat.type(f"{command} all")
