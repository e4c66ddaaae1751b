"""The tools that run commands: their targets, what they ask, and what the model gets."""

import pytest

from perdure import Agent, ConfigError, Permissions, ToolError, allow
from perdure._tools.files.records import COMMAND_NAME, parse_command_record
from perdure._tools.shell.tools import (
    check_timeout,
    describe_confinement,
    describe_risk,
    format_job_output,
    parse_command_target,
)
from perdure.hosts import CapturedStream, Confinement, JobOutput, LocalShell, ShellResult
from perdure.permissions import command, later
from perdure.testing import ScriptedModel, ScriptedShell, call
from perdure.tools import exec_tool, shell_tools

ALLOWED = Permissions(allow("*"))
CAN_WRITE = (
    "They can write below the working folder, in /tmp and in an empty home; not to .git or to configuration such as "
    "perdure.toml, nor, unless a call asks for it, to files that other programs trust, such as AGENTS.md, .github and "
    ".vscode. Files with secrets are hidden, and what is written outside of the working folder is lost when the "
    "command ends."
)


async def use(tools, *made, permission=ALLOWED):
    """Return the results of calls."""
    outcome = await Agent(ScriptedModel(*made, "Done."), tools=tools, permission=permission).run("Go.")
    assert outcome.text == "Done."
    return [result for message in outcome.new_messages for result in message.tool_results]


async def test_a_simple_command_is_run_as_words_and_a_line_by_bash():
    shell = ScriptedShell({"ls -l": "files\n", "ls; make": "both\n"})
    results = await use(shell_tools(shell), call("bash", command="ls -l"), call("bash", command="ls; make"))
    assert [each.text for each in results] == ["files", "both"]
    assert [(each.argv, each.line) for each in shell.commands] == [(("ls", "-l"), ""), ((), "ls; make")]


async def test_the_model_sees_both_streams_and_the_exit_code():
    result = ShellResult(exit_code=2, stdout=CapturedStream("out\n"), stderr=CapturedStream("err\n"))
    (seen,) = await use(shell_tools(ScriptedShell({"make": result})), call("bash", command="make"))
    assert (seen.text, seen.is_error) == ("out\n[stderr]\nerr\n[exit code: 2]", True)


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("timeout", "[timed out after 5 s: it was ended, with everything that it started]"),
        ("stopped", "[it was stopped]"),
        ("output", "[it wrote too much: it was ended]"),
    ],
)
async def test_the_model_is_told_why_a_command_was_ended(ending, text):
    shell = ScriptedShell({"make": ShellResult(exit_code=143, ending=ending)})
    (seen,) = await use(shell_tools(shell), call("bash", command="make", timeout_seconds=5))
    assert (seen.text, seen.is_error) == (text, True)


async def test_a_command_without_output_says_so():
    (seen,) = await use(shell_tools(ScriptedShell({"true": ""})), call("bash", command="true"))
    assert seen.text == "(no output)"


async def test_output_that_was_cut_names_the_file_that_has_all():
    cut = ShellResult(exit_code=0, stdout=CapturedStream("a", "z", 1234, 56, "/spool/x"))
    (seen,) = await use(shell_tools(ScriptedShell({"make": cut})), call("bash", command="make"))
    assert seen.text == "a\n[… 1,234 bytes, 56 lines omitted; all of it is in /spool/x …]\nz"


@pytest.mark.parametrize("seconds", [0, -1, 601])
async def test_a_timeout_has_limits(seconds):
    shell = ScriptedShell({"make": ""})
    (seen,) = await use(shell_tools(shell), call("bash", command="make", timeout_seconds=seconds))
    assert "at most 600" in seen.text
    assert shell.commands == []


async def test_an_empty_command_is_asked_about_and_fails():
    (seen,) = await use(shell_tools(ScriptedShell()), call("bash", command=" "), permission=Permissions())
    assert seen.status == "denied"


async def test_a_command_in_the_background_is_polled_and_stopped():
    shell = ScriptedShell({"make serve": "listening\n"})
    made = [
        call("bash", command="make serve", background=True),
        call("bash_output", job_id="job_1"),
        call("kill_shell", job_id="job_1"),
        call("bash_output", job_id="job_9"),
    ]
    started, seen, stopped, unknown = await use(shell_tools(shell), *made)
    assert "Started as job_1" in started.text
    assert seen.text == "listening\n[it has ended with exit code 0]"
    assert stopped.text == "[it has ended with exit code 0]"
    assert "no background command 'job_9'" in unknown.text
    assert shell.commands[0].timeout_seconds == 24 * 3600


async def test_a_command_that_only_reads_needs_no_permission_in_the_background_either():
    session = Agent(
        ScriptedModel(), tools=shell_tools(ScriptedShell()), permission=Permissions(handler=later)
    ).session()
    assert (await session.explain("bash", {"command": "ls"})).verdict == "allow"
    assert (await session.explain("bash", {"command": "cat a b", "background": True})).verdict == "allow"


async def test_without_a_gate_commands_that_only_read_run_and_others_do_not():
    shell = ScriptedShell({"ls": "a\n"})
    read, other = await use(
        shell_tools(shell), call("bash", command="ls"), call("bash", command="make"), permission=None
    )
    assert (read.text, other.status) == ("a", "denied")


async def test_an_approval_does_not_hold_where_the_sandbox_is_another():
    from perdure._core.tools.binding import identify_tool

    kinds = [Confinement(), Confinement(sandbox="x", network=False), Confinement(sandbox="x", network=True)]
    tools = [shell_tools(ScriptedShell(confinement=each))[0] for each in kinds]
    assert len({identify_tool(each) for each in tools}) == 3
    assert all(describe_confinement(kind) in each.description for kind, each in zip(kinds, tools, strict=True))


async def test_output_is_labelled_as_private_and_as_untrusted_if_it_may_come_from_the_network():
    for confinement, labels in (
        (Confinement(sandbox="x", network=False), ("private",)),
        (Confinement(sandbox="x", network=True), ("private", "untrusted")),
    ):
        shell = ScriptedShell({"ls": "a"}, confinement=confinement)
        (seen,) = await use(shell_tools(shell), call("bash", command="ls"))
        assert seen.labels == labels


async def test_a_question_offers_the_rule_for_the_parts_that_need_it(tmp_path):
    agent = Agent(
        ScriptedModel(call("bash", command="ls && git push origin"), "Done."),
        tools=shell_tools(ScriptedShell(root=str(tmp_path))),
        permission=Permissions(handler=later),
    )
    (question,) = (await agent.session().run("Go.")).questions
    assert "git push" in [each["covers"] for each in question.calls[0]["offers"]]


# -- words without a shell ---------------------------------------------------------------------------------------------


async def test_only_listed_programs_are_run():
    shell = ScriptedShell({"git status": "clean\n"})
    tools = [exec_tool(shell, ["git"])]
    made = [
        call("shell_exec", argv=["git", "status"]),
        call("shell_exec", argv=["rm", "x"]),
        call("shell_exec", argv=["/bin/git"]),
    ]
    results = await use(tools, *made)
    assert results[0].text == "clean"
    assert [each.text for each in results[1:]] == [
        "'rm' is not one of the programs that may be run: git",
        "'/bin/git' is not one of the programs that may be run: git",
    ]
    assert len(shell.commands) == 1


async def test_without_a_list_no_program_is_run():
    (seen,) = await use([exec_tool(ScriptedShell(), [])], call("shell_exec", argv=["ls"]))
    assert "may be run: none" in seen.text


@pytest.mark.parametrize("programs", ["git", ["/bin/git"], [""], [5]])
def test_a_list_that_makes_no_sense_is_refused(programs):
    with pytest.raises(ConfigError):
        exec_tool(ScriptedShell(), programs)


async def test_a_program_gets_a_folder_standard_input_and_a_timeout():
    shell = ScriptedShell({"cat": "x"})
    await use(
        [exec_tool(shell, ["cat"])], call("shell_exec", argv=["cat"], folder="sub", stdin="in", timeout_seconds=5)
    )
    (ran,) = shell.commands
    assert (ran.folder, ran.stdin, ran.timeout_seconds) == ("sub", "in", 5)


async def test_words_that_only_read_need_no_permission_but_another_folder_does():
    session = Agent(
        ScriptedModel(), tools=[exec_tool(ScriptedShell(), ["git"])], permission=Permissions(handler=later)
    ).session()
    for arguments, verdict in (
        ({"argv": ["git", "status"]}, "allow"),
        ({"argv": ["git", "push"]}, "ask"),
        ({"argv": ["git", "status"], "folder": "sub"}, "ask"),
    ):
        assert (await session.explain("shell_exec", arguments)).verdict == verdict


async def test_a_rule_is_about_words_too():
    session = Agent(
        ScriptedModel(),
        tools=[exec_tool(ScriptedShell(), ["git"])],
        permission=Permissions(allow(target=command("git push"))),
    ).session()
    assert (await session.explain("shell_exec", {"argv": ["git", "push", "x"]})).verdict == "allow"
    assert (await session.explain("shell_exec", {"argv": ["git", "pull"]})).verdict == "deny"


# -- on a real machine -------------------------------------------------------------------------------------------------


async def test_a_program_that_does_not_exist_is_not_found(tmp_path):
    async with LocalShell(tmp_path) as shell:
        (seen,) = await use(shell_tools(shell), call("bash", command="no-such-program -x"))
    assert seen.text == "[stderr]\nno-such-program: command not found\n[exit code: 127]"


async def test_the_target_that_was_decided_is_what_is_run(tmp_path):
    (tmp_path / "a").write_text("seen")
    async with LocalShell(tmp_path) as shell:
        first, second = await use(
            shell_tools(shell), call("bash", command="cat a"), call("bash", command="cat a && echo b")
        )
    assert (first.text, second.text) == ("seen", "seenb")


class NotedShell(ScriptedShell):
    """Notes for how long it is asked to wait."""

    def __init__(self) -> None:
        super().__init__({"make": "made\n", "ls": "a\n"})
        self.waited: list[float] = []

    async def poll(self, job_id: str, *, wait_seconds: float = 0.0) -> JobOutput:
        self.waited.append(wait_seconds)
        return JobOutput(stdout="x\n")


async def test_a_look_at_a_job_waits_from_zero_to_sixty_seconds():
    shell = NotedShell()
    asked: list[dict[str, float]] = [{"wait_seconds": each} for each in (-1, 0.5, 60, 61)]
    await use(shell_tools(shell), *[call("bash_output", job_id="j", **each) for each in [{}, *asked]])
    assert shell.waited == [0, 0, 0.5, 60, 60]


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (JobOutput(), "[it is running]"),
        (JobOutput(stdout="a\n", stderr="b\n", ending="stopped"), "a\n[stderr]\nb\n[it is running]"),
        (JobOutput(exit_code=0), "[it has ended with exit code 0]"),
        (JobOutput(exit_code=143, ending="timeout"), "[it has ended with exit code 143]\n[at its deadline]"),
        (JobOutput(exit_code=143, ending="stopped"), "[it has ended with exit code 143]\n[it was stopped]"),
        (JobOutput(exit_code=137, ending="output"), "[it has ended with exit code 137]\n[it wrote too much]"),
    ],
)
def test_a_job_is_shown_with_its_state(job, text):
    assert format_job_output(job) == text


@pytest.mark.parametrize(
    ("confinement", "description", "risk"),
    [
        (
            Confinement(),
            "There is no sandbox: every command asks the user.",
            "There is no sandbox. The command can change and send whatever you can.",
        ),
        (
            Confinement(reason="it is switched off"),
            "There is no sandbox: every command asks the user.",
            "There is no sandbox: it is switched off. The command can change and send whatever you can.",
        ),
        (
            Confinement(sandbox="x", network=True),
            f"Commands run in a sandbox, which has network access. {CAN_WRITE}",
            "The sandbox has network access: the command can send what it reads.",
        ),
        (
            Confinement(sandbox="x", network=False),
            f"Commands run in a sandbox, which has no network access (a call can ask for it). {CAN_WRITE}",
            "",
        ),
    ],
)
def test_what_a_sandbox_keeps_a_command_from_is_told_to_the_model_and_to_people(confinement, description, risk):
    assert (describe_confinement(confinement), describe_risk(confinement)) == (description, risk)
    shell = ScriptedShell(confinement=confinement)
    assert parse_command_target("make", shell).note == risk
    bash, looking, killing = shell_tools(shell)
    program = exec_tool(shell, ["make"])
    assert bash.description == f"Run a command line in bash. {description}"
    assert program.description == f"Run one program without a shell: make. {description}"
    for each in (bash, program):
        assert (each.parallel, each.credentials, each.sends) == (False, False, confinement.network)
        assert each.timeout_seconds is not None
        assert each.timeout_seconds > 600
    assert (looking.effect, killing.effect) == ("read", "idempotent")


@pytest.mark.parametrize("name", ["bash", "shell_exec"])
async def test_commands_that_may_change_files_are_in_the_log_before_they_run(name):
    shell = ScriptedShell({"make": "", "ls": ""})
    tools = [*shell_tools(shell), exec_tool(shell, ["make", "ls"])]
    session = Agent(ScriptedModel(), tools=tools, permission=ALLOWED).session("s")
    for line, stored in (("ls", None), ("make", "make")):
        arguments = {"command": line} if name == "bash" else {"argv": [line]}
        assert (await session.call(name, arguments)).status == "ok"
        record = parse_command_record(await session.kept(COMMAND_NAME))
        assert (None if record is None else record.line) == stored


def test_a_timeout_is_above_zero_and_up_to_the_limit():
    assert [check_timeout(each, 10) for each in (0.5, 1, 10)] == [0.5, 1, 10]
    for seconds in (0, -1, 10.5):
        with pytest.raises(ToolError) as raised:
            check_timeout(seconds, 10)
        assert str(raised.value) == f"timeout_seconds={seconds:g}: give a number above zero, and at most 10"


@pytest.mark.parametrize(
    ("line", "count"), [("cd sub", 1), ("cd sub; make", 0), ("cd sub; ls", 2), ("make; ls", 2), ("cd sub; cd sub", 2)]
)
def test_after_a_change_of_the_folder_only_commands_that_read_are_known(tmp_path, line, count):
    (tmp_path / "sub").mkdir()
    shell = ScriptedShell(root=str(tmp_path))
    assert len(parse_command_target(line, shell).parts) == count
