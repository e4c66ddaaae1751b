"""A scripted shell answers from its table, and remembers what it was asked."""

from typing import Any

import pytest

from perdure import ConfigError, ToolError
from perdure.hosts import CapturedStream, Confinement, JobOutput, ShellCommand, ShellResult
from perdure.testing import ScriptedShell

FAILED = ShellResult(exit_code=3, stdout=CapturedStream("a"), stderr=CapturedStream("b"), ending="timeout")


async def test_a_command_gets_its_answer_and_another_is_not_found():
    shell = ScriptedShell({"ls -l": "a.txt\n", "make": FAILED})
    asked = [ShellCommand(argv=("ls", "-l")), ShellCommand(line="make"), ShellCommand(line="rm x")]
    assert [await shell.run(each) for each in asked] == [
        ShellResult(exit_code=0, stdout=CapturedStream("a.txt\n")),
        FAILED,
        ShellResult(exit_code=127, stderr=CapturedStream("rm x: command not found\n")),
    ]
    assert shell.commands == asked


async def test_a_background_command_has_ended_and_its_output_is_told_once():
    shell = ScriptedShell({"make": FAILED, "ls": "a.txt"})
    jobs = [await shell.start(ShellCommand(line=each)) for each in ("make", "ls")]
    assert jobs == ["job_1", "job_2"]
    assert await shell.poll("job_1") == JobOutput(stdout="a", stderr="b", exit_code=3, ending="timeout")
    assert await shell.poll("job_1", wait_seconds=1) == JobOutput(exit_code=3, ending="timeout")
    assert await shell.stop("job_2") == JobOutput(stdout="a.txt", exit_code=0, ending="exit")
    assert len(shell.commands) == 2
    for job, wait in (("job_3", 0.0), ("job_1", -1.0)):
        with pytest.raises(ToolError) as error:
            await shell.poll(job, wait_seconds=wait)
        assert str(error.value) == f"there is no background command {job!r}"


def test_its_folder_and_its_confinement_are_what_it_is_told():
    usual, own = ScriptedShell(), Confinement(sandbox="bubblewrap", network=True)
    assert (usual.root, usual.confinement) == ("/work", Confinement(sandbox="none: a test", network=False))
    told = ScriptedShell(root="/src", confinement=own)
    assert (told.root, told.confinement) == ("/src", own)


@pytest.mark.parametrize("answers", [{"ls": 5}, {5: "a.txt"}])
def test_what_is_no_answer_is_refused(answers: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        ScriptedShell(answers)
    assert str(refused.value) == f"ScriptedShell(answers={answers!r}): give text or a ShellResult for each line"
