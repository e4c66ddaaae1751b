"""Tools that run commands: `bash`, its background jobs, and `shell_exec` for programs without a shell.

The command is parsed before anyone is asked, each simple command of it is decided on its own, and what was decided is
what is run: words are run without a shell, and only a line with several commands is given to bash.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from perdure.core import argument_checks
from perdure.core.command_target import CommandPart, CommandTarget
from perdure.core.error import ToolError
from perdure.core.provenance import PRIVATE_LABEL, UNTRUSTED_LABEL
from perdure.core.tool import Tool, ToolContext, ToolOutput, tool

from .command_line import split_command_line
from .file_changing_command_records import record_command
from .read_only_commands import ReadingRules, explain_reading
from .shell_backend import Confinement, JobOutput, ReadInspectingShellBackend, ShellBackend, ShellCommand, ShellResult

TIMEOUT_SECONDS: Final = 120.0
MOST_SECONDS: Final = 600.0
"""The longest that a command may run in the foreground."""
MOST_BACKGROUND_SECONDS: Final = 24 * 3600.0
_MOST_WAIT_SECONDS: Final = 60.0
_GRACE_SECONDS: Final = 10.0
"""Seconds that the tool has beyond the deadline of its command, to end it and to read its output."""
_NOT_FOUND: Final = 127


def shell_tools(
    backend: ShellBackend, *, timeout_seconds: float = TIMEOUT_SECONDS, most_seconds: float = MOST_SECONDS
) -> list[Tool[..., Any]]:
    """Return the tools `bash`, `bash_output` and `kill_shell`, which run command lines on a backend.

    Commands that only read below the working folder need no permission if the backend has a sandbox. All others, and
    lines that cannot be taken apart, are asked about.
    """
    confinement, default_seconds = backend.confinement, timeout_seconds
    job_labels = list_trust_labels(confinement)

    def target(arguments: Mapping[str, Any]) -> CommandTarget:
        return parse_command_target(str(arguments["command"]), backend)

    async def bash(
        command: Annotated[str, "The command line"],  # noqa: ARG001 - what runs is the target that was checked
        context: ToolContext[Any],
        timeout_seconds: Annotated[float | None, "Seconds after which it is ended"] = None,
        background: Annotated[bool, "Start it, and return at once with the id of a job"] = False,  # noqa: FBT002
    ) -> ToolOutput:
        checked: CommandTarget = context.target
        usual, most = (MOST_BACKGROUND_SECONDS,) * 2 if background else (default_seconds, most_seconds)
        seconds = usual if timeout_seconds is None else check_timeout(timeout_seconds, most)
        started = ShellCommand(argv=checked.argv, line="" if checked.argv else checked.text, timeout_seconds=seconds)
        if not checked.reads_only:
            await record_command(context, checked.text, backend.root)
        if background:
            job_id = await backend.start(started)
            return ToolOutput(f"Started as {job_id}. See its output with bash_output, end it with kill_shell.")
        return build_output(await backend.run(started), confinement, seconds)

    @tool(effect="read", labels=job_labels, name="bash_output")
    async def bash_output(
        job_id: str, wait_seconds: Annotated[float, "Wait up to this long for it to end; at most 60"] = 0.0
    ) -> str:
        """Return what a background command has written since the last look, and its exit code once it has ended."""
        return format_job_output(
            await backend.poll(job_id, wait_seconds=min(max(0.0, wait_seconds), _MOST_WAIT_SECONDS))
        )

    @tool(effect="idempotent", labels=job_labels, name="kill_shell")
    async def kill_shell(job_id: str) -> str:
        """End a background command and everything that it started."""
        return format_job_output(await backend.stop(job_id))

    made = tool(
        bash,
        name="bash",
        description=f"Run a command line in bash. {describe_confinement(confinement)}",
        permission=_needs_permission(target),
        action="run",
        target=target,
        parallel=False,
        credentials=False,
        sends=confinement.network,
        timeout_seconds=most_seconds + _GRACE_SECONDS,
        prompt="Give bash one purpose per call; commands that only read run without asking.",
    )
    return [made, bash_output, kill_shell]


def exec_tool(
    backend: ShellBackend, programs: Sequence[str], *, timeout_seconds: float = 30.0, most_seconds: float = MOST_SECONDS
) -> Tool[..., Any]:
    """Return the tool `shell_exec`, which runs one program without a shell.

    `programs` are the only programs that it runs, by name; with an empty list it runs none.
    """
    if isinstance(programs, str):
        argument_checks.raise_config_error(
            "exec_tool", "programs", programs, "give a list of names, such as ['git', 'make']"
        )
    for name in programs:
        if not isinstance(name, str) or not name or "/" in name:
            argument_checks.raise_config_error("exec_tool", "programs", name, "give names without a folder")
    known = tuple(dict.fromkeys(programs))
    listed = ", ".join(known) or "none"
    confinement = backend.confinement

    def target(arguments: Mapping[str, Any]) -> CommandTarget:
        checked = CommandTarget.of(arguments["argv"])
        is_root = arguments.get("folder", ".") == "."  # a program may obey the configuration of another folder
        parts = _explain_parts([checked.argv], backend) if is_root else (CommandPart(checked.argv),)
        return msgspec.structs.replace(
            checked, parts=parts, note=describe_risk(confinement), root=os.path.realpath(backend.root)
        )

    async def shell_exec(
        argv: Annotated[list[str], "The program and its arguments"],
        context: ToolContext[Any],
        folder: Annotated[str, "The folder to run in, below the working folder"] = ".",
        stdin: Annotated[str, "Text for its standard input"] = "",
        timeout_seconds: float = timeout_seconds,
    ) -> ToolOutput:
        checked: CommandTarget = context.target
        if checked.argv[0] not in known:
            raise ToolError(f"{argv[0]!r} is not one of the programs that may be run: {listed}")
        seconds = check_timeout(timeout_seconds, most_seconds)
        command = ShellCommand(argv=checked.argv, folder=folder, stdin=stdin, timeout_seconds=seconds)
        if not checked.reads_only:
            await record_command(context, checked.text, backend.root)
        return build_output(await backend.run(command), confinement, seconds)

    return tool(
        shell_exec,
        name="shell_exec",
        description=f"Run one program without a shell: {listed}. {describe_confinement(confinement)}",
        permission=_needs_permission(target),
        action="exec",
        target=target,
        parallel=False,
        credentials=False,
        sends=confinement.network,
        timeout_seconds=most_seconds + _GRACE_SECONDS,
    )


def parse_command_target(command: str, backend: ShellBackend) -> CommandTarget:
    """Parse a command line into the target of permission rules: the argv of a simple command, and all simple commands.

    It has no parts if the line cannot be split with certainty.
    """
    simple = CommandTarget.of(command)
    commands = split_command_line(command)
    parts = () if commands is None else _explain_parts(commands, backend)
    return msgspec.structs.replace(
        simple, parts=parts, note=describe_risk(backend.confinement), root=os.path.realpath(backend.root)
    )


def _explain_parts(commands: Sequence[tuple[str, ...]], backend: ShellBackend) -> tuple[CommandPart, ...]:
    """Return the parts of a line; none if one of them could do something else after a `cd`."""
    confinement = backend.confinement
    insight = backend if isinstance(backend, ReadInspectingShellBackend) else None
    rules = ReadingRules(root=backend.root, readable=confinement.readable, insight=insight)
    parts = explain_reading(commands, rules)
    if not confinement.sandbox:
        parts = [msgspec.structs.replace(each, reads_only="") for each in parts]
    changes_folder = len(commands) > 1 and any(words[0] == "cd" for words in commands)
    if changes_folder and not all(each.reads_only for each in parts):
        return ()
    return tuple(parts)


def _needs_permission(target: Callable[[Mapping[str, Any]], CommandTarget]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda arguments: not target(arguments).reads_only


def describe_confinement(confinement: Confinement) -> str:
    """Describe for the model what commands can do in the sandbox.

    The text is part of the tool's identity: approvals end when it changes.
    """
    if not confinement.sandbox:
        return "There is no sandbox: every command asks the user."
    network = "with network access" if confinement.network else "without network access"
    return f"Commands run in a sandbox {network} and can write only below the working folder and /tmp."


def describe_risk(confinement: Confinement) -> str:
    """Describe the risk of a command for the permission question; empty for a sandbox without network access."""
    if not confinement.sandbox:
        reason = f": {confinement.reason}" if confinement.reason else ""
        return f"There is no sandbox{reason}. The command can change and send whatever you can."
    return "The sandbox has network access: the command can send what it reads." if confinement.network else ""


def list_trust_labels(confinement: Confinement) -> tuple[str, ...]:
    """Return the labels of command output: private, and also untrusted if commands can reach the network."""
    return (PRIVATE_LABEL, UNTRUSTED_LABEL) if confinement.network else (PRIVATE_LABEL,)


def check_timeout(seconds: float, most: float) -> float:
    """Return the timeout given by the model; raise `ToolError` unless it is above zero and within the limit."""
    if not 0 < seconds <= most:
        raise ToolError(f"timeout_seconds={seconds:g}: give a number above zero, and at most {most:g}")
    return seconds


def build_output(result: ShellResult, confinement: Confinement, seconds: float) -> ToolOutput:
    """Build the tool output for a finished command: standard output, standard error, and how the command ended."""
    stdout, stderr = str(result.stdout), _clean_error(str(result.stderr), result.exit_code)
    ends = {
        "timeout": f"[timed out after {seconds:g} s: it was ended, with everything that it started]",
        "stopped": "[it was stopped]",
        "output": "[it wrote too much: it was ended]",
        "exit": f"[exit code: {result.exit_code}]" if result.exit_code else "",
    }
    pieces = [stdout.rstrip("\n"), f"[stderr]\n{stderr.rstrip()}" if stderr else "", ends[result.ending]]
    text = "\n".join([each for each in pieces if each]) or "(no output)"
    return ToolOutput(text, is_error=result.is_error, labels=list_trust_labels(confinement))


def _clean_error(stderr: str, exit_code: int) -> str:
    """Replace the message of the program that starts commands by that of a shell."""
    start = "prlimit: failed to execute "
    if exit_code == _NOT_FOUND and stderr.startswith(start):
        return f"{stderr.removeprefix(start).partition(':')[0]}: command not found\n"
    return stderr


def format_job_output(job: JobOutput) -> str:
    """Format the new output and the state of a background command for the model."""
    state = "[it is running]" if job.exit_code is None else f"[it has ended with exit code {job.exit_code}]"
    ends = {"timeout": "[at its deadline]", "stopped": "[it was stopped]", "output": "[it wrote too much]"}
    ended = ends.get(job.ending, "") if job.exit_code is not None else ""
    stderr = f"[stderr]\n{job.stderr.rstrip()}" if job.stderr else ""
    return "\n".join([each for each in (job.stdout.rstrip("\n"), stderr, state, ended) if each])
