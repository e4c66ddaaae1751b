"""Tools that run commands: `bash` and its background jobs, `shell_exec` for programs, `code_execution` for code."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from perdure._core.permission.targets.command import CommandPart, CommandTarget, quote_words
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, ToolOutput, tool
from perdure._core.values import checks
from perdure._core.values.error import ToolError
from perdure._core.values.provenance import PRIVATE_LABEL, UNTRUSTED_LABEL
from perdure._tools.files.command_changes import CommandChangeRecorder
from perdure._tools.files.records import FileSnapshotBackend
from perdure._tools.origin import labelled_by_origin, record_command

from .backend import Confinement, JobOutput, ReadInspectingShellBackend, ShellBackend, ShellCommand, ShellResult
from .parser import split_command_line
from .read_only import ReadingRules, explain_reading

TIMEOUT_SECONDS: Final = 120.0
MOST_SECONDS: Final = 600.0
"""The longest that a command may run in the foreground."""
MOST_BACKGROUND_SECONDS: Final = 24 * 3600.0
_MOST_WAIT_SECONDS: Final = 60.0
_GRACE_SECONDS: Final = 10.0
"""Seconds that the tool has beyond the deadline of its command, to end it and to read its output."""
_NOT_FOUND: Final = 127
_CONFIGURES: Final = "The command can change files that other programs trust, such as AGENTS.md, CI and editor tasks."
_REFUSALS: Final = "Read-only file system", "Device or resource busy"
"""What programs say of a name that the sandbox keeps them from changing."""
_REFUSED: Final = (
    "[in the sandbox, .git, configuration and files that other programs trust, such as AGENTS.md, .github and .vscode, "
    "are read-only: change the latter with the tool that writes files, or run the command with configure=true, which "
    "the user is asked about]"
)


def shell_tools(
    backend: ShellBackend,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    most_seconds: float = MOST_SECONDS,
    snapshots: FileSnapshotBackend | None = None,
) -> list[Tool[..., Any]]:
    """Return the tools `bash`, `bash_output` and `kill_shell`, which run command lines on a backend.

    Commands that only read below the working folder need no permission if the backend has a sandbox. All others, and
    lines that cannot be taken apart, are asked about. With `snapshots`, what commands change in the working folder,
    which has to be on this machine, is recorded, so that it can be undone.
    """
    recorder = CommandChangeRecorder(backend.root, snapshots, is_confined=bool(backend.confinement.sandbox))
    confinement, default_seconds = backend.confinement, timeout_seconds
    can_ask_for_network = bool(confinement.sandbox) and not confinement.network
    online = msgspec.structs.replace(confinement, network=True)
    online_jobs: set[str] = set()

    def target(arguments: Mapping[str, Any]) -> CommandTarget:
        return parse_command_target(
            str(arguments["command"]),
            backend,
            network=can_ask_for_network and arguments.get("network") is True,
            configures=bool(confinement.sandbox) and arguments.get("configure") is True,
        )

    async def bash(  # noqa: PLR0917 - a model gives them by name
        command: Annotated[str, "The command line"],  # noqa: ARG001 - what runs is the target that was checked
        context: ToolContext[Any],
        timeout_seconds: Annotated[float | None, "Seconds after which it is ended"] = None,
        background: Annotated[bool, "Start it, and return at once with the id of a job"] = False,  # noqa: FBT002
        network: Annotated[bool, "Let it reach the network, which the user is asked about"] = False,  # noqa: ARG001, FBT002 - so is this
        configure: Annotated[bool, "Let it change files like AGENTS.md, which the user is asked about"] = False,  # noqa: ARG001, FBT002 - and this
    ) -> ToolOutput:
        checked: CommandTarget = context.target
        usual, most = (MOST_BACKGROUND_SECONDS,) * 2 if background else (default_seconds, most_seconds)
        seconds = usual if timeout_seconds is None else check_timeout(timeout_seconds, most)
        started = ShellCommand(
            argv=checked.argv,
            line="" if checked.argv else checked.text,
            timeout_seconds=seconds,
            read_only=bool(checked.reads_only),
            network=checked.network,
            configures=checked.configures,
        )
        await record_command(context, backend, network=confinement.network or checked.network)
        async with recorder.record(context, checked, is_background=background) as recorded:
            if background:
                job_id = await backend.start(started)
                if checked.network:
                    online_jobs.add(job_id)
                return ToolOutput(f"Started as {job_id}. See its output with bash_output, end it with kill_shell.")
            result = await backend.run(started)
        return recorded.add_note(build_output(result, online if checked.network else confinement, seconds))

    def build_job_output(job_id: str, job: JobOutput) -> ToolOutput:
        labels = list_trust_labels(online if job_id in online_jobs else confinement)
        return ToolOutput(format_job_output(job), labels=labels)

    @tool(effect="read", name="bash_output")
    async def bash_output(
        job_id: str, wait_seconds: Annotated[float, "Wait up to this long for it to end; at most 60"] = 0.0
    ) -> ToolOutput:
        """Return what a background command has written since the last look, and its exit code once it has ended."""
        seconds = min(max(0.0, wait_seconds), _MOST_WAIT_SECONDS)
        return build_job_output(job_id, await backend.poll(job_id, wait_seconds=seconds))

    @tool(effect="idempotent", name="kill_shell")
    async def kill_shell(job_id: str) -> ToolOutput:
        """End a background command and everything that it started."""
        return build_job_output(job_id, await backend.stop(job_id))

    made = tool(
        bash,
        name="bash",
        description=f"Run a command line in bash. {describe_confinement(confinement)}{recorder.description}",
        permission=_needs_permission(target),
        action="run",
        target=target,
        parallel=False,
        credentials=False,
        sends=confinement.network,
        timeout_seconds=most_seconds + _GRACE_SECONDS,
        prompt="Give bash one purpose per call; commands that only read run without asking.",
    )
    return [labelled_by_origin(each, backend) for each in (made, bash_output, kill_shell)]


def exec_tool(
    backend: ShellBackend,
    programs: Sequence[str],
    *,
    timeout_seconds: float = 30.0,
    most_seconds: float = MOST_SECONDS,
    snapshots: FileSnapshotBackend | None = None,
) -> Tool[..., Any]:
    """Return the tool `shell_exec`, which runs one program without a shell.

    `programs` are the only programs that it runs, by name; with an empty list it runs none. `snapshots` is as for
    `shell_tools`.
    """
    recorder = CommandChangeRecorder(backend.root, snapshots, is_confined=bool(backend.confinement.sandbox))
    if isinstance(programs, str):
        checks.raise_config_error("exec_tool", "programs", programs, "give a list of names, such as ['git', 'make']")
    for name in programs:
        if not isinstance(name, str) or not name or "/" in name:
            checks.raise_config_error("exec_tool", "programs", name, "give names without a folder")
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
        command = ShellCommand(
            argv=checked.argv,
            folder=folder,
            stdin=stdin,
            timeout_seconds=seconds,
            read_only=bool(checked.reads_only),
        )
        await record_command(context, backend, network=confinement.network)
        async with recorder.record(context, checked) as recorded:
            result = await backend.run(command)
        return recorded.add_note(build_output(result, confinement, seconds))

    made = tool(
        shell_exec,
        name="shell_exec",
        description=f"Run one program without a shell: {listed}. "
        f"{describe_confinement(confinement)}{recorder.description}",
        permission=_needs_permission(target),
        action="exec",
        target=target,
        parallel=False,
        credentials=False,
        sends=confinement.network,
        timeout_seconds=most_seconds + _GRACE_SECONDS,
    )
    return labelled_by_origin(made, backend)


def parse_command_target(
    command: str, backend: ShellBackend, *, network: bool = False, configures: bool = False
) -> CommandTarget:
    """Parse a command line into the target of permission rules: the argv of a simple command, and all simple commands.

    It has no parts if the line cannot be split with certainty. With `network` or `configures`, no part of it only
    reads.
    """
    simple = CommandTarget.of(command)
    commands = split_command_line(command)
    parts = () if commands is None else _explain_parts(commands, backend)
    confinement = backend.confinement
    if network or configures:
        parts = tuple([msgspec.structs.replace(each, reads_only="") for each in parts])
    if network:
        confinement = msgspec.structs.replace(confinement, network=True)
    notes = [describe_risk(confinement), _CONFIGURES if configures else ""]
    return msgspec.structs.replace(
        simple,
        parts=parts,
        note=" ".join([each for each in notes if each]),
        root=os.path.realpath(backend.root),
        network=network,
        configures=configures,
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
    network = "has network access" if confinement.network else "has no network access (a call can ask for it)"
    return (
        f"Commands run in a sandbox, which {network}. They can write below the working folder, in /tmp and in an empty "
        "home; not to .git or to configuration such as perdure.toml, nor, unless a call asks for it, to files that "
        "other programs trust, such as AGENTS.md, .github and .vscode. Files with secrets are hidden, and what is "
        "written outside of the working folder is lost when the command ends."
    )


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
    note = f"[{result.note}]" if result.note else ""
    is_refused = bool(confinement.sandbox) and any(each in stderr for each in _REFUSALS)
    refused = _REFUSED if is_refused else ""
    pieces = [stdout.rstrip("\n"), f"[stderr]\n{stderr.rstrip()}" if stderr else "", ends[result.ending], refused, note]
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
    note = f"[{job.note}]" if job.note else ""
    return "\n".join([each for each in (job.stdout.rstrip("\n"), stderr, state, ended, note) if each])


LANGUAGES: Final[Mapping[str, Sequence[str]]] = {
    "python": ("python3", "-"),
    "javascript": ("node", "-"),
    "bash": ("bash", "-s"),
}
"""The usual languages, each with the words of the interpreter that reads the code from its standard input."""


def code_execution_tool(
    backend: ShellBackend,
    languages: Mapping[str, Sequence[str]] = LANGUAGES,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    most_seconds: float = MOST_SECONDS,
    snapshots: FileSnapshotBackend | None = None,
) -> Tool[..., Any]:
    """Return the tool `code_execution`, which runs a snippet of code and needs permission for each call.

    Args:
        backend: The machine that runs it, such as `LocalShell("work")`.
        languages: The languages, each with the words of an interpreter that reads code from its standard input.
        timeout_seconds: The usual time limit of a snippet.
        most_seconds: The longest time limit that the model can give.
        snapshots: Where contents are stored that snippets change, so that it can be undone, as for `shell_tools`.
    """
    recorder = CommandChangeRecorder(backend.root, snapshots)
    for name, words in languages.items():
        if not isinstance(name, str) or isinstance(words, str) or not words:
            advice = "give the words of an interpreter for each name, such as {'python': ['python3', '-']}"
            checks.raise_config_error("code_execution_tool", "languages", {name: words}, advice)
    known = {name: tuple(words) for name, words in languages.items()}
    listed = ", ".join(known) or "none"
    confinement, default_seconds = backend.confinement, timeout_seconds

    def target(arguments: Mapping[str, Any]) -> CommandTarget:
        words = known.get(arguments["language"], ("unknown",))
        root, part = os.path.realpath(backend.root), CommandPart(words)  # what the code reads is not known
        return msgspec.structs.replace(
            CommandTarget.of(words), parts=(part,), note=describe_risk(confinement), root=root
        )

    async def code_execution(
        language: Annotated[str, f"One of: {listed}"],
        code: str,
        context: ToolContext[Any],
        timeout_seconds: Annotated[float | None, "Seconds after which it is ended"] = None,
    ) -> ToolOutput:
        words = known.get(language)
        if words is None:
            raise ToolError(f"{language!r} is not one of the languages: {listed}")
        seconds = default_seconds if timeout_seconds is None else check_timeout(timeout_seconds, most_seconds)
        shown = msgspec.structs.replace(context.target, text=f"{quote_words(words)} <<< {quote_words([code])}")
        command = ShellCommand(argv=words, stdin=code, timeout_seconds=seconds)
        await record_command(context, backend, network=confinement.network)
        async with recorder.record(context, shown) as recorded:
            result = await backend.run(command)
        return recorded.add_note(build_output(result, confinement, seconds))

    made = tool(
        code_execution,
        name="code_execution",
        description=f"Run a snippet of code ({listed}), and return what it prints. {describe_confinement(confinement)}",
        permission=True,
        action="run",
        target=target,
        labels=list_trust_labels(confinement),
        parallel=False,
        credentials=False,
        sends=confinement.network,
        timeout_seconds=most_seconds + _GRACE_SECONDS,
    )
    return labelled_by_origin(made, backend)
