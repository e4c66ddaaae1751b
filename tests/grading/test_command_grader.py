"""A program as a grader: its exit code, its output, and its end when the time is over."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure.evals import Evidence, all_of, command_grader, grade_evidence
from perdure.hosts import CapturedStream, LocalShell, ShellCommand, ShellResult
from perdure.testing import ScriptedShell
from tests.doubles import until
from tests.grading.failures import failure_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="LocalShell needs POSIX")


def grader(folder, command, **options):
    return command_grader(command, cwd=folder, sandbox="off", **options)


async def test_exit_code_0_passes_and_the_program_gets_the_answer_as_its_input(tmp_path):
    grade = await grade_evidence(grader(tmp_path, "grep -q Bergen"), Evidence(answer="to Bergen"))
    assert (grade.passed, grade.feedback, grade.grader) == (True, "", "grep -q Bergen")


async def test_another_exit_code_fails_with_the_output_as_feedback(tmp_path):
    script = "import sys; print('2 tests failed'); sys.exit(3)"
    grade = await grade_evidence(grader(tmp_path, [sys.executable, "-c", script], name="tests"), Evidence())
    assert (grade.passed, grade.is_judged) == (False, True)
    assert grade.feedback == "tests ended with exit code 3\n2 tests failed"


async def test_a_program_that_takes_too_long_is_ended_with_its_group_and_is_the_graders_failure(tmp_path):
    line = "sleep 1000 & echo $! > child; wait"
    grade = await grade_evidence(grader(tmp_path, line, timeout_seconds=1.0), Evidence())
    assert (grade.passed, failure_of(grade).kind) == (False, "timeout")
    assert await is_gone(tmp_path / "child")


async def test_a_cancelled_grader_ends_its_program_with_everything_that_it_started(tmp_path):
    line = "sleep 1000 & echo $! > begun; mv begun child; wait"
    task = asyncio.ensure_future(grade_evidence(grader(tmp_path, line), Evidence()))
    async with asyncio.timeout(60):
        await until((tmp_path / "child").exists, 0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await is_gone(tmp_path / "child")


async def test_a_program_that_does_not_exist_is_the_graders_failure(tmp_path):
    grade = await grade_evidence(grader(tmp_path, ["no-such-program"]), Evidence())
    assert failure_of(grade).kind == "raised"


async def test_a_program_that_may_not_be_run_is_the_graders_failure(tmp_path):
    (tmp_path / "tests.sh").write_text("exit 0\n")
    grade = await grade_evidence(grader(tmp_path, "./tests.sh"), Evidence())
    assert failure_of(grade).kind == "raised"
    assert "cannot be run" in grade.feedback


async def test_both_streams_are_feedback_and_long_output_is_shortened(tmp_path):
    grade = await grade_evidence(grader(tmp_path, "echo out; echo err >&2; exit 1", name="tests"), Evidence())
    assert grade.feedback == "tests ended with exit code 1\nout\nerr"
    grade = await grade_evidence(grader(tmp_path, "head -c 9000 /dev/zero | tr '\\0' x; exit 1", name="t"), Evidence())
    assert 3_000 < len(grade.feedback) < 4_200


async def test_a_program_has_the_environment_that_it_is_given_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("API_KEY", "secret")
    line = 'test "$PORT" = 5 -a -z "$API_KEY"'
    judge = grader(tmp_path, line, env={"PORT": "5", "PATH": os.environ["PATH"]})
    assert (await grade_evidence(judge, Evidence())).passed


async def test_a_program_can_write_much_after_another_one_of_the_same_grader_has_ended(tmp_path):
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    os.mkfifo(tmp_path / "go")
    much = 'touch begun; cat go; head -c 3000000 /dev/zero | tr "\\0" x'
    judge = grader(tmp_path, f'read -r answer; if [ "$answer" = slow ]; then {much}; fi; exit 1')
    async with asyncio.timeout(60):
        task = asyncio.ensure_future(grade_evidence(judge, Evidence(answer="slow\n")))
        await until((tmp_path / "begun").exists, 0.01)
        assert (await grade_evidence(judge, Evidence(answer="quick\n"))).is_judged
        await asyncio.to_thread((tmp_path / "go").write_text, "")
        grade = await task
    assert "xxxx" in grade.feedback
    assert errors == []


async def test_a_shell_of_the_caller_is_not_closed(tmp_path):
    async with LocalShell(tmp_path, sandbox="off") as shell:
        job = await shell.start(ShellCommand(line="sleep 1000"))
        assert (await grade_evidence(command_grader(["true"], shell=shell), Evidence())).passed
        assert (await shell.poll(job)).exit_code is None


@pytest.mark.parametrize("options", [{"cwd": 5}, {"timeout_seconds": "x"}, {"timeout_seconds": -1}, {"name": 3}])
def test_invalid_options_are_refused(tmp_path, options):
    with pytest.raises(ConfigError):
        command_grader(["true"], **{"cwd": tmp_path, **options})


@pytest.mark.parametrize("command", ["", "  ", [], [""], ["a", 1], 5, None, {"a"}, b"true"], ids=repr)
def test_a_command_that_is_none_is_refused(tmp_path, command):
    with pytest.raises(ConfigError):
        grader(tmp_path, command)


@pytest.mark.parametrize(
    ("result", "kind", "feedback"),
    [
        (ShellResult(exit_code=0, stdout=CapturedStream("fine")), None, ""),
        (ShellResult(exit_code=1), None, "make ended with exit code 1"),
        (
            ShellResult(exit_code=2, stdout=CapturedStream(" out\n"), stderr=CapturedStream("err\n")),
            None,
            "make ended with exit code 2\nout\nerr",
        ),
        (ShellResult(exit_code=0, ending="stopped"), None, "make ended with exit code 0"),
        (
            ShellResult(exit_code=137, ending="timeout"),
            "timeout",
            "the grader 'make' could not judge this: it took longer than 2.5 seconds, and was ended",
        ),
        (
            ShellResult(exit_code=126, stderr=CapturedStream("no")),
            "raised",
            "the grader 'make' could not judge this: it cannot be run: no",
        ),
        (
            ShellResult(exit_code=127, stderr=CapturedStream("none")),
            "raised",
            "the grader 'make' could not judge this: it cannot be run: none",
        ),
        (
            ShellResult(exit_code=128, stderr=CapturedStream("x")),
            None,
            "make ended with exit code 128\nx",
        ),
    ],
)
async def test_the_end_of_a_program_is_a_grade_or_a_failure_of_the_grader(result, kind, feedback):
    shell = ScriptedShell({"make": result})
    grade = await grade_evidence(command_grader("make", shell=shell, timeout_seconds=2.5), Evidence(answer="Aye."))
    assert (grade.feedback, grade.grader) == (feedback, "make")
    assert (None if grade.failure is None else grade.failure.kind) == kind
    assert grade.passed == (not feedback)
    assert shell.commands == [ShellCommand(line="make", stdin="Aye.", timeout_seconds=2.5)]


async def is_gone(file):
    """True once the process whose id is in the file has ended; also if the program was ended before it began one."""
    written = file.read_text().strip() if file.exists() else ""
    if written:
        async with asyncio.timeout(60):
            await until(lambda: not is_running(int(written)), 0.01)
    return True


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_no_file_of_a_long_output_is_left_when_the_program_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, work = tmp_path / "temporary", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    judge = grader(work, "head -c 3000000 /dev/zero | tr '\\0' x; exit 1")
    for _ in range(2):
        assert "xxxx" in (await grade_evidence(judge, Evidence())).feedback
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_grade_has_the_labels_that_results_of_the_shell_have(tmp_path, trusted):
    """What a program writes may be the words of whoever wrote the folder, and is the feedback for the model."""
    shell = LocalShell(tmp_path, trusted=trusted)
    grade = await grade_evidence(command_grader(["false"], shell=shell), Evidence())
    has_reached_others = shell.confinement.network or not trusted  # without a sandbox there is no other network
    assert grade.labels == (("private", "untrusted") if has_reached_others else ("private",))
    joined = await grade_evidence(all_of(lambda _: False, command_grader(["false"], shell=shell)), Evidence())
    assert joined.labels == grade.labels
    await shell.close()
