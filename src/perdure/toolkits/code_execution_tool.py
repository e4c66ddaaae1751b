"""The tool `code_execution`: a shell backend runs a snippet of code, in its sandbox if it has one."""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from perdure.core import argument_checks
from perdure.core.command_target import CommandPart, CommandTarget, quote_words
from perdure.core.error import ToolError
from perdure.core.tool import Tool, ToolContext, ToolOutput, tool

from .command_change_recorder import CommandChangeRecorder
from .file_reads_and_changes import FileSnapshotBackend
from .shell import (
    MOST_SECONDS,
    TIMEOUT_SECONDS,
    build_output,
    check_timeout,
    describe_confinement,
    describe_risk,
    list_trust_labels,
)
from .shell_backend import ShellBackend, ShellCommand
from .text_origin import labelled_by_origin, record_command

LANGUAGES: Final[Mapping[str, Sequence[str]]] = {
    "python": ("python3", "-"),
    "javascript": ("node", "-"),
    "bash": ("bash", "-s"),
}
"""The usual languages, each with the words of the interpreter that reads the code from its standard input."""
_GRACE_SECONDS: Final = 10.0


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
            argument_checks.raise_config_error("code_execution_tool", "languages", {name: words}, advice)
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
