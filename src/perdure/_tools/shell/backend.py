"""The backend of the shell tools: its protocol, and the commands and results that it uses."""

from collections.abc import Collection, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from perdure._core.values.error import ConfigError

ShellEnding: TypeAlias = Literal["exit", "timeout", "stopped", "output"]
"""Why a command ended: by itself, at its deadline, because it was stopped, or because it wrote too much."""


class ShellCommand(Struct, frozen=True, kw_only=True):
    """A command that a shell backend runs: an argv without a shell, or a line for bash."""

    argv: tuple[str, ...] = ()
    """The words of a simple command, run without a shell; empty if `line` is given."""
    line: str = ""
    """A command line for bash; empty if `argv` is given."""
    folder: str = "."
    """The folder to run in, relative to the working folder of the backend, and not outside of it."""
    stdin: str = ""
    """The text on standard input; empty for none."""
    timeout_seconds: float = 120.0
    """After this long the command and everything that it started is ended."""
    read_only: bool = False
    """True for a command that nobody was asked about, because it only reads: the sandbox then lets it write nothing."""

    network: bool = False
    """True for a command that may reach the network, though others may not."""

    configures: bool = False
    """True for a command that may change files which other programs trust, such as AGENTS.md and those of CI."""

    def __post_init__(self) -> None:
        if bool(self.argv) == bool(self.line):
            raise ConfigError("ShellCommand: give argv=(…) or line='…', and not both")
        if any("\0" in each for each in (*self.argv, self.line, self.folder)):
            raise ConfigError("ShellCommand: a command cannot contain a NUL character")
        if not self.timeout_seconds > 0:
            raise ConfigError(f"ShellCommand(timeout_seconds={self.timeout_seconds!r}): give a number above zero")


class CapturedStream(Struct, frozen=True):
    """The output of one stream of a command: the whole, or its beginning and its end."""

    head: str = ""
    """The output; if it is longer than the limit, its beginning."""
    tail: str = ""
    """The end of an output that is longer than the limit; else empty."""
    omitted_bytes: int = 0
    """Bytes between the two."""
    omitted_lines: int = 0
    """Line ends between the two."""
    spool_file: str = ""
    """A file with all of the output, if some was omitted; else empty."""

    def __str__(self) -> str:
        if not self.omitted_bytes:
            return self.head + self.tail
        where = f"; all of it is in {self.spool_file}" if self.spool_file else ""
        omitted = f"[… {self.omitted_bytes:,} bytes, {self.omitted_lines:,} lines omitted{where} …]"
        return f"{self.head}\n{omitted}\n{self.tail}"


class ShellResult(Struct, frozen=True, kw_only=True):
    """The result of a shell command: exit code, both output streams, why it ended, and its duration."""

    exit_code: int
    """The exit code; 128 and the number of the signal if one has ended it."""
    stdout: CapturedStream = CapturedStream()
    stderr: CapturedStream = CapturedStream()
    ending: ShellEnding = "exit"
    """Why the command ended."""
    seconds: float = 0.0
    """How long it ran."""
    note: str = ""
    """What else the model should know, such as that a commit could not be taken over; or empty."""

    @property
    def is_error(self) -> bool:
        """True if the command failed, or did not end by itself."""
        return self.exit_code != 0 or self.ending != "exit"


class JobOutput(Struct, frozen=True, kw_only=True):
    """New output of a background command, and its state."""

    stdout: str = ""
    """What it has written since the last look; its beginning and end if that is long."""
    stderr: str = ""
    exit_code: int | None = None
    """The exit code; `None` while it runs."""
    ending: ShellEnding = "exit"
    """Why it ended, if it has."""
    note: str = ""
    """As in `ShellResult`."""


class Confinement(Struct, frozen=True, kw_only=True):
    """The sandbox of a shell backend: whether there is one, and what its commands can reach."""

    sandbox: str = ""
    """The name of the sandbox, such as "bubblewrap"; empty if there is none."""
    network: bool = True
    """True if commands can reach the network."""
    reason: str = ""
    """Why there is no sandbox; for the person who is asked about a command."""
    readable: tuple[str, ...] = ()
    """Folders besides the working folder that commands may read unasked, such as that of spool files."""


@runtime_checkable
class ReadInspectingShellBackend(Protocol):
    """Protocol of a shell backend that knows what its commands would read, so that fewer of them need permission."""

    def list_hidden_paths(self) -> Collection[str]:
        """Return the real paths of files and folders below the root that its sandbox hides from every command."""
        ...

    def list_git_paths(
        self, command: str, options: Sequence[str], revisions: Sequence[str], paths: Sequence[str]
    ) -> Sequence[str] | None:
        """Return the paths, relative to the root, of all files that `git diff`, `git show` or `git log -p` would show.

        `None` if it cannot be told: a revision is no commit, there is too much to list, or a file is outside the root.
        """
        ...


class ShellBackend(Protocol):
    """Protocol of a backend that runs the commands of shell tools, such as `LocalShell`."""

    @property
    def root(self) -> str:
        """The working folder, as an absolute path."""
        ...

    @property
    def confinement(self) -> Confinement:
        """The sandbox of commands, or the reason why there is none."""
        ...

    async def run(self, command: ShellCommand) -> ShellResult:
        """Run a command to its end. If the call is cancelled, everything that the command started is ended first."""
        ...

    async def start(self, command: ShellCommand) -> str:
        """Start a command in the background, and return the id of the job."""
        ...

    async def poll(self, job_id: str, *, wait_seconds: float = 0.0) -> JobOutput:
        """Return what a job has written since the last look; wait up to this long for its end.

        Raises `ToolError` for an unknown id.
        """
        ...

    async def stop(self, job_id: str) -> JobOutput:
        """End a job and everything that it started, and return the last of its output."""
        ...
