"""`command_grader`: a grader that runs a program, such as the tests of a project, and judges by its exit code."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from perdure._core.tools.worker.threads import THREAD_POOL
from perdure._core.tools.wrappers import shorten_text
from perdure._core.values import checks
from perdure._core.values.message import merge_labels
from perdure._tools.origin import list_folder_labels
from perdure._tools.shell.backend import ShellBackend, ShellCommand, ShellResult
from perdure._tools.shell.local import LocalShell, Sandbox
from perdure._tools.shell.tools import list_trust_labels

from .grader import Evidence, Grade, Grader, build_failed_grade

COMMAND_SECONDS: Final = 300.0
"""The default time that the program may take."""
MOST_FEEDBACK_CHARACTERS: Final = 4_000
"""Characters of the program's output that the feedback has."""
NOT_FOUND: Final = 127
"""Exit code of a program that does not exist."""
NOT_EXECUTABLE: Final = 126


class CommandGrader:
    """A grader that runs a program: exit code 0 means passed, and the output is the feedback."""

    def __init__(self, command: ShellCommand, shell: ShellBackend, name: str, *, owns_shell: bool = False) -> None:
        self._command = command
        self._shell = shell
        self._owns_shell = owns_shell
        self._running = 0
        self.name = name

    async def grade(self, evidence: Evidence) -> Grade:
        """Run the program with the answer as its standard input, and return the grade of its exit code.

        If this is cancelled, or the time is over, everything that the program started is ended.
        """
        command = ShellCommand(
            argv=self._command.argv,
            line=self._command.line,
            stdin=evidence.answer,
            timeout_seconds=self._command.timeout_seconds,
        )
        self._running += 1
        try:
            done = await self._shell.run(command)
        finally:
            self._running -= 1
            await self._remove_spool_files()
        if done.ending == "timeout":
            message = f"it took longer than {command.timeout_seconds:g} seconds, and was ended"
            return build_failed_grade(self.name, "timeout", message)
        if done.exit_code in {NOT_FOUND, NOT_EXECUTABLE}:
            return build_failed_grade(self.name, "raised", f"it cannot be run: {_describe_output(done)}")
        passed = not done.is_error
        feedback = "" if passed else f"{self.name} ended with exit code {done.exit_code}\n{_describe_output(done)}"
        labels = () if passed else await THREAD_POOL.run(self._list_labels, (), {})
        return Grade(passed=passed, feedback=feedback.strip(), grader=self.name, labels=labels)

    def _list_labels(self) -> tuple[str, ...]:
        """Return the labels of the output, as those of a command of the agent."""
        return merge_labels(list_trust_labels(self._shell.confinement), list_folder_labels(self._shell))

    async def _remove_spool_files(self) -> None:
        """Remove the spool files of a shell of ours, unless a program that grades another answer still writes some."""
        if self._owns_shell and not self._running and isinstance(self._shell, LocalShell):
            await self._shell.close()

    def __repr__(self) -> str:
        return f"CommandGrader({self.name!r})"


def command_grader(
    command: str | Sequence[str],
    *,
    cwd: str | os.PathLike[str] = ".",
    env: Mapping[str, str] | None = None,
    sandbox: Sandbox = "auto",
    network: bool = False,
    timeout_seconds: float = COMMAND_SECONDS,
    shell: ShellBackend | None = None,
    name: str = "",
    trusted: bool | None = None,
) -> Grader:
    """Make a grader that runs a program, and passes if its exit code is 0. The program gets the answer as its input.

    It runs in the sandbox of `LocalShell`: it can write in its folder alone, and sees no secrets. When the time is
    over, or the grader is cancelled, it is ended with everything that it started.

    Args:
        command: The program and its arguments, as in `["pytest", "-q"]`; a text is a line for bash.
        cwd: The folder that it runs in.
        env: Its whole environment; by default a PATH, HOME, LANG and TERM.
        sandbox: `auto`: if the machine has one; `require`: raise `ConfigError` if it has none; `off`: never.
        network: True if it may use the network.
        timeout_seconds: The time after which it is ended; that is a failure of the grader, and not of the work.
        shell: A backend to run it, instead of this machine; then the other options of the machine do not count.
        name: The name in grades; by default the command.
        trusted: True if you, or people whom you trust, wrote what is in the folder; else its output is `untrusted`. By
            default True, unless the folder is in a git repository.
    """
    checks.require_text("command_grader", "name", name)
    checks.require_number("command_grader", "timeout_seconds", timeout_seconds)
    if not isinstance(cwd, str | os.PathLike):
        checks.raise_config_error("command_grader", "cwd", cwd, "give the path of a folder")
    line, words = (command, ()) if isinstance(command, str) else ("", _to_words(command))
    if not (line.strip() or words) or not all(isinstance(each, str) and each for each in words):
        checks.raise_config_error("command_grader", "command", command, "give a program, as ['pytest', '-q']")
    given = ShellCommand(argv=words, line=line, timeout_seconds=timeout_seconds)
    backend = shell or LocalShell(cwd, env=env, sandbox=sandbox, network=network, trusted=trusted)
    return CommandGrader(given, backend, name or given.line or " ".join(words), owns_shell=shell is None)


def _to_words(command: Any) -> tuple[Any, ...]:
    """Return the program and its arguments; nothing if the command is no list."""
    is_list = isinstance(command, Sequence) and not isinstance(command, bytes)
    return tuple(cast("Sequence[Any]", command)) if is_list else ()


def _describe_output(done: ShellResult) -> str:
    """Return the output of both streams, shortened."""
    text = "\n".join([each for each in (str(done.stdout).strip(), str(done.stderr).strip()) if each])
    return shorten_text(text, MOST_FEEDBACK_CHARACTERS)
