"""`LocalShell`: run the commands of shell tools on this machine, in a sandbox if the system has one.

A command gets exactly the environment that is given, a session of its own, and limits. Nothing that it starts outlives
it: not its end, not its deadline, not the death of this process.
"""

# ruff: noqa: PTH101, PTH112, PTH117, PTH118 - before every command, where pathlib would cost time
import asyncio
import contextlib
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values import checks
from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError, ToolError
from perdure._io.files.origin import FolderOrigin
from perdure._io.processes.private_folder import PrivateFolder
from perdure._tools.sandbox.bubblewrap import (
    START_MARK,
    SYSTEM_PATH,
    build_sandbox,
    build_start_announcement,
    find_bubblewrap,
    find_hidden_secrets,
    find_own_home_folders,
    find_runtime_files,
    find_system_program,
    is_real_folder,
    make_covers,
)

from .backend import Confinement, JobOutput, ShellCommand, ShellResult
from .command import RunningCommand, SpoolLimits
from .environment import build_confined_environment, build_unconfined_environment
from .output import trim_folder

if TYPE_CHECKING:
    from perdure._tools.git.mounts import GitView

Sandbox: TypeAlias = Literal["auto", "require", "off"]
"""`auto`: if the machine has one; `require`: raise `ConfigError` if it has none; `off`: never."""

MOST_JOBS: Final = 32
"""Background commands that may run at the same time."""
MOST_SPOOL_BYTES: Final = 1024**3
"""Bytes of spool files that are kept; the oldest are removed first."""
_FOLDER_PREFIX: Final = "perdure-shell-"
"""The beginning of the names of the folders with spool files, and of private homes."""
_LISTING_SECONDS: Final = 2.0
"""The longest time that git may take to list the files that a command would show."""
_SHOWING_VARIABLES: Final = frozenset({"COLUMNS", "LANG", "LANGUAGE", "LINES", "LOGNAME", "TERM", "TZ", "USER"})
"""Environment variables that a command gets which only reads, besides PATH and those of the locale."""
_GIT_WITHOUT_PROGRAMS: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Settings that keep git from configuration elsewhere, from fetching what is missing, and from writing its index."""
_ENTERED: Final = stat.S_IRUSR | stat.S_IXUSR
"""What the owner of the working folder must be permitted for commands to run there."""
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
            checks.require_int("CommandLimits", name, getattr(self, name), 1)


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
        trusted: bool | None = None,
        readable: Sequence[str] = (),
        writable: Sequence[str] = (),
        limits: CommandLimits | None = None,
        unix_sockets: bool = False,
    ) -> None:
        """Run commands in `root`, and below.

        Args:
            root: The working folder: the only one that commands in the sandbox can write to.
            env: The environment of commands, exactly. Without it: a PATH, HOME, LANG and TERM, the virtual environment
                of the project, and the name that git commits with.
            sandbox: `auto`, `require` or `off`.
            network: Whether commands in the sandbox can reach the network.
            trusted: True if the user, or people whom the user trusts, wrote what is in `root`; else the output of
                commands is labelled `untrusted`. By default True, unless the folder is in a git repository.
            readable: Further folders below `/tmp` or the home folder that commands must see.
            writable: Further folders that commands can write to, such as a cache.
            limits: Limits of each command.
            unix_sockets: Whether commands in the sandbox can make Unix sockets, as servers of databases do.
        """
        if os.name != "posix":
            raise ConfigError(
                "LocalShell runs commands on Linux and macOS: give shell_tools a ShellBackend of your own"
            )
        checks.require_one_of("LocalShell", "sandbox", sandbox, ("auto", "require", "off"))
        checks.require_bool("LocalShell", "network", network)
        checks.require_bool("LocalShell", "unix_sockets", unix_sockets)
        self._root = _check_root(root)
        self._readable = tuple([os.path.realpath(each) for each in readable])
        self._writable = tuple([os.path.realpath(each) for each in writable])
        self.origin = FolderOrigin.of(
            "LocalShell", self._root, trusted=trusted, readable=self._readable, writable=self._writable
        )
        """Who wrote the text in the working folder."""
        self._limits = limits or CommandLimits()
        self._given_env = None if env is None else _check_environment(env)
        self._default_env: Mapping[str, str] | None = None
        self._unix_sockets = unix_sockets
        self._spool: PrivateFolder | None = None
        self._home: PrivateFolder | None = None
        self._jobs: dict[str, RunningCommand] = {}
        problem = "the sandbox is switched off" if sandbox == "off" else find_bubblewrap()[1]
        if problem and sandbox == "require":
            raise ConfigError(f"LocalShell(sandbox='require'): {problem}")
        if not problem:
            from .placeholders import (
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
        if not self._confinement.sandbox:
            return None
        from perdure._tools.files.local import LocalFiles  # at first use: not every shell runs git
        from perdure._tools.git.local import LocalGit

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
            _restore_access(self._root)

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
        _restore_access(self._root)
        return job.take_output()

    async def close(self) -> None:
        """End all background commands, and remove the spool files."""
        await asyncio.gather(*[each.end("stopped") for each in self._jobs.values()])
        folders = self._spool, self._home
        self._spool = self._home = self._default_env = None
        for folder in folders:
            if folder is not None:
                folder.remove()

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
        _restore_access(self._root)
        try:
            return self._start(command, self._resolve_folder(command.folder))
        except OSError as error:
            raise ToolError(
                f"the command cannot be started in {command.folder!r}: {error.strerror or error}; "
                "see whether an earlier command has changed the mode of a folder"
            ) from error

    def _start(self, command: ShellCommand, folder: str) -> RunningCommand:
        if self._spool is None:
            self._spool = PrivateFolder(_FOLDER_PREFIX)
        spool_folder = self._spool.path
        trim_folder(spool_folder, MOST_SPOOL_BYTES)
        limits = self._limits
        words = [*_limit_prefix(limits, is_confined=bool(self._confinement.sandbox)), *_build_argv(command)]
        kept = SpoolLimits(limits.output_bytes, os.path.join(spool_folder, new_id()), limits.spool_bytes)
        if not self._confinement.sandbox:
            return RunningCommand.start_supervised(words, command, folder, self._find_environment(), kept=kept)
        from .placeholders import guard_placeholders  # which imports what Windows does not have

        env = self._find_environment()
        if command.read_only:
            env = reading_environment(env, (self._root, *self._writable))
        guard = guard_placeholders(self._root)
        try:
            readable = (*self._readable, spool_folder)
            runtime_files = find_runtime_files(
                self._root, readable=readable, writable=self._writable, read_only=command.read_only
            )
            guard.keep_hidden(runtime_files.files, runtime_files.created)
            git = self._show_git(command, runtime_files.files)
            env = {**env, **git.env}
            sandbox = build_sandbox(
                self._root,
                network=self._confinement.network or command.network,
                readable=readable,
                writable=self._writable,
                read_only=command.read_only,
                git=git.options,
                pinned=git.pinned,
                runtime_files=runtime_files,
            )
            most = limits.processes if os.geteuid() == 0 else 0  # the kernel does not count those of root
            announcement = build_start_announcement(env)
            folders = (self._root, *self._writable)
            guard.expect_mounts(sandbox, folders)
            return RunningCommand.start_confined(
                [*sandbox, *announcement, *words],
                command,
                folder,
                env,
                kept=kept,
                guard=guard,
                most_processes=most,
                start_mark=START_MARK if announcement else b"",
                folders=folders,
                finish=git.finish,
                unix_sockets=self._unix_sockets,
            )
        except BaseException:
            guard.release()
            raise

    def _show_git(self, command: ShellCommand, unlisted: Sequence[str]) -> "GitView":
        """Choose what a command in the sandbox sees of git repositories."""
        from perdure._tools.git import mounts  # after the start, which does not need it
        from perdure._tools.sandbox.trusted_files import TrustedFiles

        covers, runs_git = make_covers(), mounts.mentions_git(command.argv, command.line)
        if command.read_only:
            return mounts.show_git_without_programs(self._root, covers) if runs_git else mounts.GitView()
        folders = (self._root, *self._writable)
        shown = mounts.show_work_copy(folders, covers, unlisted) if runs_git else mounts.protect_git(folders, covers)
        before = TrustedFiles(folders, may_change=command.configures)
        return mounts.set_programs_aside_after(shown, folders, before)

    def _find_environment(self) -> Mapping[str, str]:
        """Return the environment of commands, and make their private home if there is no sandbox."""
        if self._given_env is not None:
            return self._given_env
        if self._default_env is None:
            if self._confinement.sandbox:
                self._default_env = build_confined_environment(self._root)
            else:
                self._home = PrivateFolder(_FOLDER_PREFIX)
                self._default_env = build_unconfined_environment(self._root, self._home.path)
        return self._default_env

    def _resolve_folder(self, folder: str) -> str:
        """Return the folder that a command runs in. Raises `ToolError` if it is not below the root."""
        path = os.path.realpath(os.path.join(self._root, folder))
        if path != self._root and not path.startswith(f"{self._root}/"):
            raise ToolError(f"{folder!r} is not below the working folder: give a folder relative to it")
        if not os.path.isdir(path):
            raise ToolError(f"there is no folder {folder!r} in the working folder")
        return path


def _restore_access(root: str) -> None:
    """Let the owner enter the working folder again after a command such as `chmod 0 .`."""
    with contextlib.suppress(OSError):
        found = os.lstat(root)
        if found.st_uid == os.geteuid() and found.st_mode & stat.S_IRWXU & _ENTERED != _ENTERED:
            os.chmod(root, stat.S_IMODE(found.st_mode) | stat.S_IRWXU)


def reading_environment(env: Mapping[str, str], folders: Sequence[str]) -> dict[str, str]:
    """Return the environment of a command that runs unasked because it only reads.

    It has the variables that say how text is shown, and no other: many name a program or a file with options, such as
    PAGER, LESSOPEN, GIT_EXTERNAL_DIFF, RIPGREP_CONFIG_PATH and LD_PRELOAD. Its PATH leads to no folder that a command
    can write to, and its home is empty.
    """
    kept = {name: value for name, value in env.items() if name in _SHOWING_VARIABLES or name.startswith("LC_")}
    path = env.get("PATH", SYSTEM_PATH).split(os.pathsep)
    outside = [
        each
        for each in path
        if os.path.isabs(each) and not any(f"{os.path.realpath(each)}/".startswith(f"{top}/") for top in folders)
    ]
    return {**kept, "HOME": "/tmp", "PATH": os.pathsep.join(outside), **_GIT_WITHOUT_PROGRAMS}  # noqa: S108 - a tmpfs


def _check_root(root: str | os.PathLike[str]) -> str:
    path = os.path.realpath(root)
    if not is_real_folder(path):
        checks.raise_config_error("LocalShell", "root", root, "give a folder that exists")
    if path == "/" or any(f"{home}/".startswith(f"{path}/") for home in find_own_home_folders()):
        checks.raise_config_error(
            "LocalShell", "root", root, "give the folder of a project, and not the home folder, or one above it"
        )
    return path


def _check_environment(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        is_text = isinstance(name, str) and isinstance(value, str)
        if not is_text or not name or "=" in name or "\0" in name + value:
            checks.raise_config_error("LocalShell", "env", {name: value}, "give names and values as text")
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
