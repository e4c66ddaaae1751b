"""The whole chat in this process: keys are typed into it, and its screen is drawn by an emulator."""

import asyncio
import base64
import io
import re
from collections.abc import Sequence
from contextlib import asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pyte
import pytest

from perdure import Agent, ConfigError, Extension, Session, Text, ToolContext, Usage, allow, assistant, tool, user
from perdure._cli.run.assembly import AgentParts
from perdure._cli.run.model import ModelChoice
from perdure._cli.run.options import AgentOptions, RunCommandOptions
from perdure._cli.run.project import build_coding_extension
from perdure._cli.terminal.input import LineReader
from perdure._cli.terminal.signals import SignalHandler
from perdure.context import Role, Skill, Skills
from perdure.events import MessageAdded, ReplyFinished, RunStarted, TextDelta
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call, pause
from tests.doubles import Held, crashed, until

pytestmark = pytest.mark.packages("prompt_toolkit", "rich")

HELP = "- type a prompt; /help lists the commands, Esc cancels, Ctrl-C twice leaves"
CHOICES = "[y]es, [n]o, [r]un, [s]ession, [f]orever, [?] help:"
PATIENCE = 20
"""Seconds after which a test that waits for the screen gives up."""


class Terminal(io.StringIO):
    """A terminal of 80 columns, which keeps all that is written."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self._screen = pyte.Screen(80, 400)  # so tall that nothing scrolls away
        self._stream = pyte.Stream(self._screen)
        self._rows: dict[int, str] = {}
        self._drawn_length = 0

    def isatty(self):
        return True

    def draw(self) -> list[str]:
        """Return the rows up to the last that is not empty; only what was written since the last time is drawn."""
        self.seek(self._drawn_length)
        self._stream.feed(self.read())
        self._drawn_length = self.tell()
        for place in self._screen.dirty:
            cells = self._screen.buffer[place]
            row = "".join([cells[column].data for column in range(max(cells, default=-1) + 1)]).rstrip()
            self._rows[place] = re.sub(r"^(\* .*) \(\d+ s\)$", r"\1", row)  # without how long a call took
        self._screen.dirty.clear()
        last = max([place for place, row in self._rows.items() if row], default=-1)
        return [self._rows[place] for place in range(last + 1)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A project in which the chat is, with a home of its own."""
    for name, value in {
        "COLUMNS": "80", "LINES": "40", "TERM": "xterm", "NO_COLOR": "1",
        "PERDURE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path / "person"), "PERDURE_MODEL": "demo",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("perdure._cli.chat.program._TICK_SECONDS", 0.01)
    monkeypatch.setattr("perdure._cli.chat.input._REDRAW_SECONDS", 0.0)  # each turn of the spinner is drawn
    monkeypatch.setattr("perdure._cli.chat.input._ESCAPE_SECONDS", 0.01)  # keys are typed at once
    monkeypatch.setattr(LineReader, "discard_typed", lambda _: None)  # no terminal has kept what was typed
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    return project


class Chat:
    """A chat that is open: its program, and what is on its screen."""

    def __init__(self, program: Any, agent: Any, keyboard: Any, terminal: Terminal, interrupts: SignalHandler) -> None:
        self.program = program
        self.agent = agent
        self.terminal = terminal
        self.interrupts = interrupts
        self._keyboard = keyboard
        self.running = asyncio.ensure_future(program.run(agent))

    async def type(self, keys: str, *texts: str, gone: str = "") -> list[str]:
        """Type keys, wait until all of these texts are on the screen and another is not, and return the rows."""
        if keys:
            self._keyboard.send_text(keys)
        seen: list[str] = []

        def is_shown() -> bool:
            seen[:] = self.terminal.draw()
            drawn = "\n".join(seen)
            return all(text in drawn for text in texts) and not (gone and gone in drawn)

        try:
            async with asyncio.timeout(PATIENCE):
                await until(is_shown, pause=0.005)
        except TimeoutError:
            raise AssertionError(f"{texts} did not appear; this did:\n" + "\n".join(seen)) from None
        return seen

    async def leave(self) -> int:
        self.program.close()
        async with asyncio.timeout(PATIENCE):
            return await self.running


@asynccontextmanager
async def opened(
    *replies: Any, tools: Sequence[Any] = (), store: str = "memory:", reason: str = "you said so",
    notes: tuple[str, ...] = (), extensions: Sequence[Extension] = (), session_id: str | None = "plan",
    more: dict[str, Any] | None = None, **order: Any,
):  # fmt: skip
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input

    from perdure._cli.chat.program import ChatProgram

    terminal = Terminal()
    parts = AgentParts(
        choice=ModelChoice("acme:small", reason), notes=notes, allowed=(allow("look"),),
        options={
            "model": ScriptedModel(*replies), "tools": tools, "store": store, "extensions": extensions, **(more or {}),
        },
    )  # fmt: skip
    options = RunCommandOptions(session_id=session_id, agent=AgentOptions(), **order)
    with (
        redirect_stdout(terminal),
        create_pipe_input() as keyboard,
        create_app_session(input=keyboard),
        SignalHandler(lambda _: None) as interrupts,
    ):
        program = ChatProgram(options, parts, interrupts)
        gate = parts.build_gate(program.permission, yes=options.yes or options.yolo)
        agent = interrupts.wrap_agent(parts.build_agent(permission=gate, answer_timeout_seconds=float("inf")))
        async with agent:
            chat = Chat(program, agent, keyboard, terminal, interrupts)
            try:
                yield chat
            finally:
                assert await chat.leave() == 0


def sqlite(folder: Path) -> str:
    return f"sqlite:{folder.parent / 'sessions.db'}"


async def test_the_first_screen_has_the_model_the_notes_and_the_status():
    async with opened(notes=("a file is\nused", "another is not")) as chat:
        assert await chat.type("", "ready") == [
            "- model acme:small: you said so",
            "- a file is␊used",
            "- another is not",
            HELP,
            ">",
            "ready | acme:small | plan",
        ]
    async with opened(reason="") as chat:
        assert (await chat.type("", "ready"))[:2] == ["- model acme:small", HELP]


@pytest.mark.parametrize("option", ["yes", "yolo"])
@pytest.mark.parametrize(
    ("name", "danger"), [("bash", ", commands too, and they run without a\n  sandbox: no bwrap"), ("dash", "")]
)
async def test_that_nothing_is_asked_is_said_at_the_start(monkeypatch, option, name, danger):
    @tool(name=name, description="Runs a command.")
    def run_command() -> str:
        return "ran"

    monkeypatch.setattr("perdure._tools.sandbox.bubblewrap.find_bubblewrap", lambda: ("", "no bwrap"))
    order: dict[str, Any] = {option: True}
    shell = Extension(name="shell", tools=[run_command])
    async with opened(call(name), "Done.", extensions=[shell], **order) as chat:
        seen = await chat.type("", "ready")
        assert "\n".join(seen[1:-3]) == f"- every tool call is made without asking{danger}"
        seen = await chat.type("Go.\r", "Done.", "ready")
        assert seen[-8:-2] == ["> Go.", "", f"* {name}", "    ran", "", "  Done."]


async def test_a_prompt_is_answered_and_the_session_is_named_at_the_end(folder, capsys):
    usage = Usage(1200, 34, cache_read_tokens=900)
    async with opened([TextDelta("Hello **there**."), ReplyFinished(usage=usage)], store=sqlite(folder)) as chat:
        await chat.type("", "ready")
        seen = await chat.type("\n  Hi you.\n\r", "Hello there.", "ready | 1.2k in")
        assert seen[2:] == [
            "",
            ">   Hi you.",
            "",
            "  Hello there.",
            ">",
            "ready | 1.2k in, 75% cached, 34 out | acme:small | plan",
        ]
        assert [each.text for each in await chat.agent.session("plan").messages()] == ["  Hi you.", "Hello **there**."]
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "go on with: perdure --session plan\n"


@pytest.mark.parametrize(("store", "prompt"), [("memory:", "Hi.\r"), ("", " \r\n \r")])
async def test_a_session_that_is_not_stored_is_not_named_and_blank_prompts_are_not_sent(folder, capsys, store, prompt):
    async with opened("Hello.", store=store or sqlite(folder)) as chat:
        await chat.type("", "ready")
        await chat.type(prompt, *(("Hello.",) if store else ()))
        await until(lambda: not chat.program.is_running)
    assert capsys.readouterr().err == ""


async def test_a_generated_id_is_shortened(folder, capsys):
    async with opened("Hello.", store=sqlite(folder), session_id="0123456789abcdef0123456789abcdef") as chat:
        await chat.type("Hi.\r", "Hello.", "ready | 10 in, 5 out | acme:small | 0123456789ab")
    assert capsys.readouterr().err == "go on with: perdure --session 0123456789ab\n"


async def test_what_is_typed_before_the_session_is_open_waits_for_it(monkeypatch):
    is_read, read = asyncio.Event(), Session.messages

    async def read_late(self: Session[Any]) -> Any:
        await is_read.wait()
        return await read(self)

    monkeypatch.setattr(Session, "messages", read_late)
    async with opened("Hello.") as chat:
        assert (await chat.type("", "starting"))[-2:] == [">", "starting"]
        assert (await chat.type("Hi.\r/usage\rx", "> x"))[-3:] == [HELP, "> x", "starting"]
        is_read.set()
        seen = await chat.type("", "Hello.", "ready |", "| turns")
        assert seen.index("> Hi.") > seen.index(HELP)


async def tell(store: str, *prompts: str) -> None:
    """Store the session `plan`, in which each prompt was answered by `Re: PROMPT`."""
    async with Agent(ScriptedModel(*[f"Re: {each}" for each in prompts]), store=store) as agent:
        for each in prompts:
            await agent.session("plan").run(each)


@pytest.mark.parametrize(
    ("prompts", "shown"),
    [(["One."], ["One."]), (["One.", "Two."], ["One.", "Two."]), (["One.", "Two.", "Three."], ["Two.", "Three."])],
)
async def test_a_stored_session_is_opened_with_its_last_two_prompts(folder, prompts, shown):
    await tell(sqlite(folder), *prompts)
    async with opened("Four.", store=sqlite(folder)) as chat:
        seen = await chat.type("", "ready")
        assert seen[2 : len(seen) - 2] == [
            f"- session plan, {2 * len(prompts)} messages; the last of them:",
            *[row for each in shown for row in ("", f"> {each}", "", f"  Re: {each}")],
        ]
        assert seen[-1] == f"ready | {10 * len(prompts)} in, {5 * len(prompts)} out | acme:small | plan"


async def test_a_message_that_came_from_elsewhere_is_no_prompt_at_which_the_shown_part_begins(folder):
    held = Held()
    store = sqlite(folder)
    async with Agent(ScriptedModel("Re: One.", call("held"), "Re: Two."), tools=[held.tool], store=store) as agent:
        session = agent.session("plan")
        await session.run("One.")
        run = asyncio.ensure_future(session.run("Two."))
        await held.started.wait()
        await session.steer("Faster.")
        held.released.set()
        await run
    async with opened("Four.", store=store) as chat:
        seen = await chat.type("", "ready")
        assert [row for row in seen if row.startswith("> ")] == ["> One.", "> Two.", "> Faster."]


async def test_a_message_during_a_run_steers_it_and_is_shown_once(folder):
    held = Held(effect="read")
    async with opened(call("held"), "Done.", tools=[held.tool]) as chat:
        await chat.type("Go.\r", "waiting for held")
        seen = await chat.type("Use blue.\r", "> Use blue.")
        assert seen[3:7] == ["> Go.", "", "> Use blue.", "- the model gets it before its next turn"]
        held.released.set()
        seen = await chat.type("", "Done.", "ready |")
        assert seen[3:-1] == [
            "> Go.",
            "",
            "> Use blue.",
            "- the model gets it before its next turn",
            "",
            "* held",
            "    released",
            "",
            "  Done.",
            ">",
        ]
        # the same words are shown again when they are sent again from elsewhere
        await chat.agent.session("plan").steer("Use blue.")
        await chat.agent.session("plan").wake()
        await chat.type("", "> Use blue.\n- sent from elsewhere")


async def test_the_spinner_turns_while_the_model_is_waited_for_and_escape_cancels():
    held = pause()
    async with opened([TextDelta("Once upon"), held], "More.") as chat:
        await chat.type("Tell me.\r", "Once upon")
        for turned in ("-", "\\", "|", "/"):
            await chat.type("", f"\n{turned} waiting for the model, which answers | acme:small | plan")
        seen = await chat.type("\x1b", "cancelled", "ready |")
        assert seen[3:-1] == [
            "> Tell me.",
            "",
            "  Once upon",
            "- cancelled; what was written so far is kept, and the next prompt goes on from",
            "  there",
            ">",
        ]
        assert (await chat.type("On.\r", "More.", "ready |"))[-4:-2] == ["", "  More."]


async def test_a_run_that_is_over_before_the_spinner_turns_leaves_the_chat_ready(monkeypatch):
    shown = asyncio.Event()
    monkeypatch.setattr("perdure._cli.chat.program._TICK_SECONDS", 3600)
    monkeypatch.setattr("perdure._cli.chat.conversation.keep_partial_reply", lambda *_: shown.wait())
    async with opened([TextDelta("Hello."), ReplyFinished(usage=Usage(10, 5))]) as chat:
        await chat.type("Hi.\r", "  Hello.", "\n- waiting for the model | 10 in, 5 out | acme:small")
        shown.set()
        await chat.type("", "\nready | 10 in, 5 out | acme:small | plan")


async def test_ctrl_o_shows_the_last_result_in_full():
    @tool(effect="read")
    def count() -> str:
        """Count."""
        return "\n".join([f"line {number}" for number in range(10)])

    async with opened(call("count"), "Done.", tools=[count]) as chat:
        await chat.type("", "ready")
        assert (await chat.type("\x0f", "there is no", "ready"))[2:-2] == ["- there is no tool call to show yet"]
        await chat.type("Go.\r", "Done.", "ready |")
        assert "\n".join(chat.terminal.draw()).count("line 5") == 0
        seen = await chat.type("\x0f", "line 5", "ready |")
        assert seen[-13:-2] == ["* count", *[f"    line {number}" for number in range(10)]]
        shown = "\n".join(seen)
        assert "there is no tool call to show yet" in shown
        assert shown.count("there is no") == 1
        await chat.type("/show 1\r", "> /show 1")
        seen = await chat.type("/show 2\r", "- error: there is no such tool result; /show shows the last one, /show N")
        assert "\n".join(seen).count("- error: ") == 1


async def test_commands_use_the_program(folder):
    skills = Skills([Skill(name="bake", description="Bakes bread.", body="Bake.")])
    roles = [Role("scout", "Look around.", description="Looks.")]
    async with opened("First.", "Second.", store=sqlite(folder), more={"skills": skills, "roles": roles}) as chat:
        await chat.type("Begin.\r", "First.", "ready |")
        assert chat.program.last_answer == "First."
        await chat.type("/copy\r", "> /copy", "6 characters were sent to the clipboard")
        assert f"\x1b]52;c;{base64.b64encode(b'First.').decode()}\x07" in chat.terminal.getvalue()
        await chat.type("/permissions\r", "\n| rule 1: allow")
        await chat.type("/model\r", "- the model is acme:small")
        await chat.type("/model demo\r", "- the next model is demo", "out | demo | plan")
        await chat.type("/role scout\r", "- the next run has the role scout")
        await chat.type("/undo\r", "- there is nothing to undo")
        await chat.type("/nothing\r", "- error: there is no command or skill /nothing; /help lists")
        seen = await chat.type("/fork 1\r", "- this is a fork, ", "> Begin.\nready")
        assert seen[-2] == "> Begin."
        await chat.type("\x03", "once more to leave")
        await chat.type("/resume\r", "| 1 plan: Begin.", "Which? 1 to 1, or Enter for none:\nwaiting for your answer")
        seen = await chat.type("1\r", "- session plan, 2 messages", "ready |")
        assert "Which? 1 to 1, or Enter for none: 1" in seen
        await chat.type("/quit\r")
        assert await chat.running == 0


async def test_skills_and_arguments_are_completed():
    skills = Skills([Skill(name="bake", description="Bakes bread.", body="Bake.")])
    roles = [Role("scout", "Look around.", description="Looks.")]
    async with opened(more={"skills": skills, "roles": roles}) as chat:
        await chat.type("", "ready")
        await chat.type("/ba", "/bake  Bakes bread.")
        await chat.type("\x03/role s", "\n  scout\n")
    async with opened() as chat:
        await chat.type("", "ready")
        await chat.type("/us", "/usage  show tokens, cache and cost")


async def test_permission_is_asked_in_the_chat():
    @tool(permission=True)
    def put(text: str) -> str:
        """Put a text."""
        return f"put {text}"

    async with opened(call("put", text="a"), call("put", text="b"), "Done.", tools=[put]) as chat:
        seen = await chat.type("Go.\r", CHOICES, "waiting for your answer")
        assert seen[3:] == [
            "> Go.",
            "",
            "Allow this call? (1 of 1, 5 rows)",
            "| agent: the agent of the session",
            '| tool: "put"',
            '| action: "put"',
            "| target: the arguments",
            '| argument text: "a"',
            CHOICES,
            "waiting for your answer | acme:small | plan",
        ]
        seen = await chat.type("y\r", "    put a", "Allow this call?")
        await chat.type("n\r", "* put b (denied)", "Done.", "ready |")


async def test_the_agent_that_wants_to_make_a_call_is_named():
    @tool(permission=True)
    def put(text: str) -> str:
        """Put a text."""
        return f"put {text}"

    clerk = Agent(ScriptedModel(call("put", text="a"), "Put."), name="clerk", tools=[put])
    async with opened(call("clerk", task="Put it."), "Done.", tools=[clerk.as_tool()]) as chat:
        seen = await chat.type("Go.\r", CHOICES, "waiting for your answer")
        assert seen[5:7] == ["Allow this call? (1 of 1, 5 rows)", '| agent: "clerk-call_1"']
        await chat.type("y\r", "Done.", "ready |")


async def test_a_tool_asks_in_the_chat_and_a_long_answer_is_wrapped():
    @tool(effect="read")
    async def order(context: ToolContext[Any]) -> str:
        """Order."""
        return f"{await context.ask('What do you want?')}!"

    async with opened(call("order"), "Done.", tools=[order]) as chat:
        await chat.type("Go.\r", "What do you want?", "waiting for your answer")
        answer = "bread " * 20
        seen = await chat.type(f"{answer}\r", "Done.", "ready |")
        place = next(number for number, row in enumerate(seen) if "bread" in row)
        assert seen[place:-2] == [
            f"? What do you want? {answer[:57]}",
            f"  {answer[57:].rstrip()}",
            "",
            "* order",
            f"    {answer[:75]}",
            f"    {answer[75:]}!",
            "",
            "  Done.",
        ]


async def test_leaving_with_an_open_question_leaves_it_open_and_the_next_chat_asks_again(folder, capsys):
    done: list[str] = []

    @tool(permission=True)
    def put(text: str) -> str:
        """Put a text."""
        done.append(text)
        return f"put {text}"

    async with opened(assistant([Text("I try."), call("put", text="a")]), tools=[put], store=sqlite(folder)) as chat:
        await chat.type("Go.\r", CHOICES)
    assert capsys.readouterr().err == "its run is not finished; go on with: perdure --session plan\n"
    assert done == []
    async with opened("Done.", tools=[put], store=sqlite(folder)) as chat:
        seen = await chat.type("", CHOICES)
        assert seen[2:10] == [
            "- session plan, 1 messages; the last of them:",
            "",
            "> Go.",
            "",
            "  I try.",
            "- its last run was cut off: it goes on now; Esc cancels it",
            "",
            "Allow this call? (1 of 1, 5 rows)",
        ]
        await chat.type("y\r", "Done.", "ready |")
    assert done == ["a"]
    assert capsys.readouterr().err == "go on with: perdure --session plan\n"


async def test_a_run_of_another_agent_is_not_continued(folder):
    store = open_store(sqlite(folder))
    await crashed(store, "plan", RunStarted(agent="other", run_id="r"), MessageAdded(user("Hi"), run_id="r"))
    await store.aclose()
    async with opened(store=sqlite(folder)) as chat:
        seen = await chat.type("", "ready |")
        assert seen[2:-2] == [
            "- session plan, 1 messages; the last of them:",
            "",
            "> Hi",
            "- its last run was cut off, and is not continued: session 'plan': its run",
            "  belongs to agent 'other', and this is agent 'agent'; continue it in the",
            "  program that began it, with session.resume() or agent.attend_all()",
        ]


async def test_a_change_of_a_file_is_shown_as_a_diff(folder):
    store = sqlite(folder)
    (folder / "notes.txt").write_text("one\ntwo\n")
    replies = [
        call("read", path="notes.txt"),
        call("edit", path="notes.txt", old_string="two", new_string="TWO"),
        call("edit", path="notes.txt", old_string="gone", new_string="x"),
        "Done.",
    ]
    coding = build_coding_extension(".", store, trusted=True)
    async with opened(*replies, store=store, extensions=[coding], yes=True) as chat:
        seen = await chat.type("Go.\r", "Done.", "ready |")
        assert seen[5:-4] == [
            "",
            "* read notes.txt",
            "    one",
            "    two",
            "* edit notes.txt",
            "    --- a/notes.txt",
            "    +++ b/notes.txt",
            "    @@ -1,2 +1,2 @@",
            "     one",
            "    -two",
            "    +TWO",
            "* edit notes.txt (error)",
            "    old_string was not found: 'gone'. Read the file again, and copy the text ex",
            "    actly.",
        ]
        await chat.type("/undo\r", "- restored  notes.txt")
    store = "memory:"
    coding = build_coding_extension(".", store, trusted=True)
    async with opened(*replies, store=store, extensions=[coding], yes=True) as chat:
        seen = await chat.type("Go.\r", "Done.", "ready |")
        assert "--- a/notes.txt" not in seen


async def test_a_signal_ends_the_chat(folder, capsys):
    held = pause()
    async with opened([TextDelta("Once upon"), held], store=sqlite(folder)) as chat:
        await chat.type("Tell me.\r", "Once upon")
        chat.interrupts.begin_shutdown()
        assert await chat.running == 0
    assert capsys.readouterr().err == "its run is not finished; go on with: perdure --session plan\n"


# -- the command -------------------------------------------------------------------------------------------------------


def run(keys: str, **options: Any) -> tuple[int, str]:
    """Run the chat with keys that are typed at once; return its exit code and its last screen."""
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input

    from perdure._cli.chat.program import run_chat

    terminal = Terminal()
    with redirect_stdout(terminal), create_pipe_input() as keyboard, create_app_session(input=keyboard):
        keyboard.send_text(keys)
        code = run_chat(RunCommandOptions(**options))
    return code, "\n".join(terminal.draw())


def test_the_chat_of_a_session_has_the_options_with_which_it_was_begun(perdure, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert perdure("run", "--context", "--no-coding", "--session", "plan", "Calculate 6 * 7").exit_code == 0
    code, shown = run("/tools\r/quit\r", session_id="plan")
    assert code == 0
    assert "session plan, 4 messages; the last of them:" in shown
    assert "| search_history: " in shown
    code, shown = run("/tools\r/quit\r")
    assert code == 0
    assert "| calculate: " in shown
    assert "search_history" not in shown


@pytest.mark.packages("tree_sitter_bash")
def test_with_yolo_the_chat_does_not_begin_without_a_sandbox(monkeypatch):
    monkeypatch.setattr("perdure._tools.sandbox.bubblewrap.find_bubblewrap", lambda: ("", "no bwrap"))
    with pytest.raises(ConfigError, match="--yolo is for commands that run in a sandbox, and here is none: no bwrap"):
        run("/quit\r", yolo=True, agent=AgentOptions(coding=True))
    assert run("/quit\r", agent=AgentOptions(coding=True))[0] == 0
