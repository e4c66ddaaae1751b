"""`perdure resume`, after a run that was killed."""

import signal

from perdure.core import faults

KILLED = {faults.VARIABLE: "loop.intent_stored=kill"}
WRITE = 'Write "hello" to the text file hello.txt'


def killed(shell, prompt, *options):
    """A session whose run was killed when the intent of its call was stored."""
    result = shell.run("run", "--session", "s", *options, prompt, environment=KILLED)
    assert result.returncode == -signal.SIGKILL
    assert "the last run was cut off; finish it with: perdure resume s" in shell.run("sessions", "show", "s").stderr


def test_a_call_that_may_have_happened_is_unknown_and_the_run_goes_on(shell):
    killed(shell, WRITE, "--yes")
    result = shell.run("resume", "s", "--yes")
    assert result.returncode == 0
    assert "tool write_text unknown: " in result.stderr
    assert "The tool write_text did not succeed (unknown)" in result.stdout
    assert not (shell.folder / "hello.txt").exists()
    assert "write_text unknown:" in shell.run("sessions", "show", "s").stdout


def test_a_call_that_only_reads_is_made_again(shell):
    killed(shell, "Calculate 6 * 7")
    result = shell.run("resume", "s")
    assert result.returncode == 0
    assert result.stdout.startswith("The tool calculate says: 42")


def test_a_run_that_has_ended_cannot_be_resumed(perdure):
    perdure("run", "--session", "s", "Calculate 6 * 7")
    result = perdure("resume", "s")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: session 's' has nothing to resume: its last run ended with status 'done'")


def test_a_session_that_is_not_there_is_not_made(perdure):
    assert perdure("resume", "nobody").exit_code == 66
    assert perdure("run", "--session", "nobody", "--resume").exit_code == 66
    assert perdure("sessions", "list").stdout == ""


def test_run_finishes_what_was_cut_off_before_it_says_something_new(shell):
    killed(shell, "Calculate 6 * 7")
    result = shell.run("run", "--session", "s", "--resume", "Calculate 1 + 1")
    assert result.returncode == 0
    assert result.stdout.index("says: 42") < result.stdout.index("says: 2")


def test_run_has_nothing_to_finish_in_a_session_that_is_whole(perdure):
    perdure("run", "--session", "s", "Calculate 6 * 7")
    result = perdure("run", "--session", "s", "--resume", "Calculate 1 + 1")
    assert (result.exit_code, result.stdout.count("says:")) == (0, 1)


def test_run_without_a_prompt_only_finishes(shell):
    killed(shell, "Calculate 6 * 7")
    result = shell.run("run", "--session", "s", "--resume")
    assert (result.returncode, result.stdout.count("says:")) == (0, 1)
