"""`LocalShell`: run the commands of shell tools on this machine, in a sandbox if the system has one.

A command gets exactly the environment that is given, a session of its own, and limits. Nothing that it starts outlives
it: not its end, not its deadline, not the death of this process.
"""

# ruff: noqa: PTH112, PTH117, PTH118 - before every command, where pathlib would cost time
import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure.core import argument_checks
from perdure.core.clock_and_ids import new_id
from perdure.core.error import ConfigError, ToolError
from perdure.toolkits.shell_backend import Confinement, JobOutput, ShellCommand, ShellResult

from .bubblewrap import (
    START_MARK,
    build_sandbox,
    build_start_announcement,
    find_bubblewrap,
    find_hidden_secrets,
    find_own_home_folders,
    find_system_program,
    is_real_folder,
)
from .output_capture import trim_folder
from .running_command import RunningCommand, SpoolLimits

Sandbox: TypeAlias = Literal["auto", "require", "off"]
"""`auto`: if the machine has one; `require`: raise `ConfigError` if it has none; `off`: never."""

MOST_JOBS: Final = 32
"""Background commands that may run at the same time."""
MOST_SPOOL_BYTES: Final = 1024**3
"""Bytes of spool files that are kept; the oldest are removed first."""
_LISTING_SECONDS: Final = 2.0
"""The longest time that git may take to list the files that a command would show."""
_KEPT_JOBS: Final = 64
"""Background commands whose last output can be looked at."""


class CommandLimits(Struct, frozen=True, kw_only=True):
    """Limits of one shell command; on Linux each applies to every process that the command starts."""

    cpu_seconds: int = 600
    """CPU time of a process."""
    memory_bytes: int = 4 * 1024**3
    """Memory that a process can allocate."""
    file_bytes: int = 1024**3
    """Size of a file that it can write."""
    open_files: int = 1024
    processes: int = 512
    """Processes and threads in the sandbox."""
    output_bytes: int = 64 * 1024
    """Output of a stream that is kept for the model, half from its beginning and half from its end."""
    spool_bytes: int = 64 * 1024**2
    """Output of a stream that is kept in a file. A command that writes more is ended."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            argument_checks.require_int("CommandLimits", name, getattr(self, name), 1)


class _SpoolFolder:
    """A folder for spool files, which is removed on demand, or with this object."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="perdure-")
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class LocalShell:
    """Runs shell commands on this machine, below one folder: the `ShellBackend` of coding agents.

    Close it with `async with`, or `await shell.close()`: background commands are then ended, and spool files removed.
    A shell that was closed can be used again.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        env: Mapping[str, str] | None = None,
        sandbox: Sandbox = "auto",
        network: bool = False,
        readable: Sequence[str] = (),
        writable: Sequence[str] = (),
        limits: CommandLimits | None = None,
    ) -> None:
        """Run commands in `root`, and below.

        Args:
            root: The working folder: the only one that commands in the sandbox can write to.
            env: The environment of commands, exactly. Without it: a PATH, HOME, LANG and TERM.
            sandbox: `auto`, `require` or `off`.
            network: Whether commands in the sandbox can reach the network.
            readable: Further folders below `/tmp` or the home folder that commands must see.
            writable: Further folders that commands can write to, such as a cache.
            limits: Limits of each command.
        """
        if os.name != "posix":
            raise ConfigError(
                "LocalShell runs commands on Linux and macOS: give shell_tools a ShellBackend of your own"
            )
        argument_checks.require_one_of("LocalShell", "sandbox", sandbox, ("auto", "require", "off"))
        argument_checks.require_bool("LocalShell", "network", network)
        self._root = _check_root(root)
        self._limits = limits or CommandLimits()
        self._env = default_environment(self._root) if env is None else _check_environment(env)
        self._spool: _SpoolFolder | None = None
        self._readable = tuple([os.path.realpath(each) for each in readable])
        self._writable = tuple([os.path.realpath(each) for each in writable])
        self._jobs: dict[str, RunningCommand] = {}
        problem = "the sandbox is switched off" if sandbox == "off" else find_bubblewrap()[1]
        if problem and sandbox == "require":
            raise ConfigError(f"LocalShell(sandbox='require'): {problem}")
        if not problem:
            from .sandbox_placeholder_lock import (
                remove_leftover_placeholders,  # which imports what Windows does not have
            )

            remove_leftover_placeholders(self._root)
        self._confinement = Confinement(
            sandbox="" if problem else "bubblewrap",
            network=network or bool(problem),
            reason=problem,
        )

    @property
    def root(self) -> str:
        """The working folder."""
        return self._root

    @property
    def confinement(self) -> Confinement:
        """The sandbox of commands, or the reason why there is none."""
        return replace(self._confinement, readable=() if self._spool is None else (self._spool.path,))

    def list_hidden_paths(self) -> Collection[str]:
        """Return the files and folders below the working folder that the sandbox hides: names that mean secrets."""
        return find_hidden_secrets(self._root) if self._confinement.sandbox else ()

    def list_git_paths(
        self, command: str, options: Sequence[str], revisions: Sequence[str], paths: Sequence[str]
    ) -> Sequence[str] | None:
        """Return the paths of all files that a git command would show; `None` if they cannot be told."""
        from .local_files import LocalFiles  # at first use: not every shell runs git
        from .local_git import LocalGit

        try:
            git = LocalGit(LocalFiles(self._root), max_seconds=_LISTING_SECONDS)
            return git.list_shown_paths(command, options, revisions, paths)
        except (ConfigError, ToolError):
            return None

    async def run(self, command: ShellCommand) -> ShellResult:
        """Run a command to its end. If this is cancelled, everything that the command started is ended first."""
        running = self._launch(command)
        try:
            return await running.wait()
        finally:
            await running.end("stopped")

    async def start(self, command: ShellCommand) -> str:
        """Start a command in the background, and return the id of the job."""
        if sum(not each.has_ended for each in self._jobs.values()) >= MOST_JOBS:
            raise ToolError(f"{MOST_JOBS} background commands are running: stop one first")
        ended = [job_id for job_id, each in self._jobs.items() if each.has_ended]
        for job_id in ended[: max(0, len(self._jobs) - _KEPT_JOBS)]:
            del self._jobs[job_id]
        job_id = f"job_{new_id()[-8:]}"
        self._jobs[job_id] = self._launch(command)
        return job_id

    async def poll(self, job_id: str, *, wait_seconds: float = 0.0) -> JobOutput:
        """Return what a job has written since the last look, and its exit code if it has ended."""
        job = self._find_job(job_id)
        await job.wait_for_end(wait_seconds)
        return job.take_output()

    async def stop(self, job_id: str) -> JobOutput:
        """End a job and everything that it started, and return the last of its output."""
        job = self._find_job(job_id)
        await job.end("stopped")
        return job.take_output()

    async def close(self) -> None:
        """End all background commands, and remove the spool files."""
        await asyncio.gather(*[each.end("stopped") for each in self._jobs.values()])
        spool, self._spool = self._spool, None
        if spool is not None:
            spool.remove()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _find_job(self, job_id: str) -> RunningCommand:
        job = self._jobs.get(job_id)
        if job is None:
            known = ", ".join(self._jobs) or "none was started"
            raise ToolError(f"there is no background command {job_id!r}: {known}")
        return job

    def _launch(self, command: ShellCommand) -> RunningCommand:
        folder = self._resolve_folder(command.folder)
        if self._spool is None:
            self._spool = _SpoolFolder()
        spool_folder = self._spool.path
        trim_folder(spool_folder, MOST_SPOOL_BYTES)
        limits = self._limits
        words = [*_limit_prefix(limits, is_confined=bool(self._confinement.sandbox)), *_build_argv(command)]
        kept = SpoolLimits(limits.output_bytes, os.path.join(spool_folder, new_id()), limits.spool_bytes)
        if not self._confinement.sandbox:
            return RunningCommand.start_supervised(words, command, folder, self._env, kept=kept)
        from .sandbox_placeholder_lock import guard_placeholders  # which imports what Windows does not have

        guard = guard_placeholders(self._root)
        try:
            sandbox = build_sandbox(
                self._root,
                network=self._confinement.network,
                readable=(*self._readable, spool_folder),
                writable=self._writable,
            )
            most = limits.processes if os.geteuid() == 0 else 0  # the kernel does not count those of root
            announcement = build_start_announcement(self._env)
            return RunningCommand.start_confined(
                [*sandbox, *announcement, *words],
                command,
                folder,
                self._env,
                kept=kept,
                guard=guard,
                most_processes=most,
                start_mark=START_MARK if announcement else b"",
            )
        except BaseException:
            guard.release()
            raise

    def _resolve_folder(self, folder: str) -> str:
        """Return the folder that a command runs in. Raises `ToolError` if it is not below the root."""
        path = os.path.realpath(os.path.join(self._root, folder))
        if path != self._root and not path.startswith(f"{self._root}/"):
            raise ToolError(f"{folder!r} is not below the working folder: give a folder relative to it")
        if not os.path.isdir(path):
            raise ToolError(f"there is no folder {folder!r} in the working folder")
        return path


def default_environment(root: str) -> dict[str, str]:
    """Return the environment variables that commands get when none are given: PATH, HOME, LANG and TERM.

    Of the PATH of this process, folders that are relative or below the root are left out: a program there may have been
    written by the model.
    """
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    outside = [
        each for each in given if os.path.isabs(each) and not f"{os.path.realpath(each)}/".startswith(f"{root}/")
    ]
    return {"PATH": os.pathsep.join(outside), "HOME": "/tmp", "LANG": "C.UTF-8", "TERM": "dumb"}  # noqa: S108 - a tmpfs


def _check_root(root: str | os.PathLike[str]) -> str:
    path = os.path.realpath(root)
    if not is_real_folder(path):
        argument_checks.raise_config_error("LocalShell", "root", root, "give a folder that exists")
    if path == "/" or path in find_own_home_folders():
        argument_checks.raise_config_error(
            "LocalShell", "root", root, "give the folder of a project, and not the home folder or /"
        )
    return path


def _check_environment(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        is_text = isinstance(name, str) and isinstance(value, str)
        if not is_text or not name or "=" in name or "\0" in name + value:
            argument_checks.raise_config_error("LocalShell", "env", {name: value}, "give names and values as text")
    return dict(env)


def _build_argv(command: ShellCommand) -> tuple[str, ...]:
    if command.argv:
        return command.argv
    bash = find_system_program("bash") or "/bin/bash"
    return (bash, "--noprofile", "--norc", "-c", command.line)


def _limit_prefix(limits: CommandLimits, *, is_confined: bool) -> list[str]:
    """Return the command line prefix that limits a command. Without util-linux, as on macOS, there are fewer limits."""
    program = find_system_program("prlimit")
    if program is None:
        script = f'ulimit -t {limits.cpu_seconds}; ulimit -n {limits.open_files}; ulimit -c 0; exec "$@"'
        return ["/bin/sh", "-c", script, "sh"]
    words = [
        program,
        f"--cpu={limits.cpu_seconds}",
        f"--data={limits.memory_bytes}",
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        "--core=0",
    ]
    # Outside of the sandbox the kernel would count all processes of the user.
    return [*words, *([f"--nproc={limits.processes}"] if is_confined else []), "--"]
