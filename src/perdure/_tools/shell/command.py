"""A running shell command: its output is read as it is written, and its whole process tree can be ended."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final, Protocol

from msgspec import Struct

from perdure._core.values.clock import SYSTEM_CLOCK
from perdure._core.values.error import ConfigError
from perdure._io.processes import supervisor
from perdure._io.processes.tree import kill_session, list_descendants, signal_processes, wait_for_exit
from perdure._tools.sandbox.bubblewrap import filter_system_calls, replace_stdin
from perdure._tools.sandbox.mount_check import find_misplaced_mount

from .backend import JobOutput, ShellCommand, ShellEnding, ShellResult
from .output import READ_BYTES, OutputCapture

GRACE_SECONDS: Final = 2.0
"""Seconds between SIGTERM and SIGKILL."""
_DRAIN_SECONDS: Final = 0.2
"""Seconds for the last output to arrive once the command has ended; a process outside of its tree may hold the pipe."""
_COUNT_SECONDS: Final = 0.2
"""Seconds between two counts of processes."""


class SpoolLimits(Struct, frozen=True):
    """Limits on a command's captured output, in memory and on disk, and the path prefix of its spool files."""

    keep_bytes: int
    spool_file: str
    spool_bytes: int


class SandboxedCommandLock(Protocol):
    """Protocol of a lock that is kept while a sandboxed command runs, and released when it has ended."""

    @property
    def descriptor(self) -> int:
        """The locked file, which the sandbox keeps open: the lock outlives this process if the command does."""
        ...

    def note_failed_start(self) -> None:
        """Note that the command never began, so that the sandbox may have been set up in other places than planned."""
        ...

    def release(self) -> None:
        """Give the lock back."""
        ...


class RunningCommand:
    """A shell command that was started, with its output so far. Use it on one event loop only."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        timeout_seconds: float,
        kept: SpoolLimits,
        *,
        control: int | None = None,
        guard: SandboxedCommandLock | None = None,
        most_processes: int = 0,
        start_mark: bytes = b"",
        answer_pipe: int | None = None,
        check: Callable[[int], str] | None = None,
        finish: Callable[[], str] | None = None,
    ) -> None:
        self._process = process
        self._check = check
        self._finish = finish
        self._note = ""
        self._answer_pipe = answer_pipe
        self._control = control
        self._is_supervised = control is not None
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._drained: asyncio.Future[None] = self._loop.create_future()
        self._ending: ShellEnding = "exit"
        self._ender: asyncio.Task[None] | None = None
        self._start_mark = start_mark
        self._has_begun = not start_mark
        self._captures: dict[int, OutputCapture] = {}
        self._stdout = self._capture(process.stdout, kept, ".out")
        self._stderr = self._capture(process.stderr, kept, ".err")
        self._deadline = self._loop.call_later(timeout_seconds, self._begin_end, "timeout")
        self._counter = asyncio.ensure_future(self._limit_processes(most_processes)) if most_processes else None
        self._watcher = asyncio.ensure_future(self._watch())

    @classmethod
    def start_confined(
        cls,
        words: Sequence[str],
        command: ShellCommand,
        folder: str,
        env: Mapping[str, str],
        *,
        kept: SpoolLimits,
        guard: SandboxedCommandLock,
        most_processes: int,
        start_mark: bytes,
        folders: Sequence[str] = (),
        finish: Callable[[], str] | None = None,
        unix_sockets: bool = False,
    ) -> "RunningCommand":
        """Start a command in a sandbox, which ends it together with this process.

        If there is a mark, it is the first thing that the command writes to its standard error, and the command begins
        when it is answered: if what lies below the `folders`, which commands can write to, is mounted as the words
        say. `finish` is called on a thread once it has ended with everything that it started, and
        returns a note for its result.
        """
        answer_pipe = None
        with filter_system_calls(words, unix_sockets=unix_sockets) as ((program, *options), descriptors):
            locked = [program, "--sync-fd", str(guard.descriptor), *options]
            inherited = (guard.descriptor, *descriptors)
            if start_mark:
                process, answer_pipe = _spawn_announced(locked, command.stdin, folder, env, *inherited)
            else:
                process = _spawn(locked, command.stdin, folder, env, *inherited)
        return cls(
            process,
            command.timeout_seconds,
            kept,
            guard=guard,
            most_processes=most_processes,
            start_mark=start_mark,
            answer_pipe=answer_pipe,
            check=partial(find_misplaced_mount, words, folders),
            finish=finish,
        )

    @classmethod
    def start_supervised(
        cls, words: Sequence[str], command: ShellCommand, folder: str, env: Mapping[str, str], *, kept: SpoolLimits
    ) -> "RunningCommand":
        """Start a command below a supervisor, which ends everything that it started when this process dies."""
        read, write = os.pipe()
        try:
            with tempfile.TemporaryFile() as variables:
                variables.write(b"".join([os.fsencode(f"{name}={value}\0") for name, value in env.items()]))
                variables.seek(0)
                fds = (read, variables.fileno())
                started = [sys.executable, "-I", "-S", str(Path(supervisor.__file__)), *map(str, fds), *words]
                process = _spawn(started, command.stdin, folder, {}, *fds)
        except BaseException:
            os.close(write)
            raise
        finally:
            os.close(read)
        return cls(process, command.timeout_seconds, kept, control=write)

    @property
    def has_ended(self) -> bool:
        """True if the command has ended, and everything that it started."""
        return self._ended.done()

    async def wait(self) -> ShellResult:
        """Wait until the command has ended, and return its result."""
        await asyncio.shield(self._ended)
        return ShellResult(
            exit_code=self._exit_code,
            stdout=self._stdout.build_output(),
            stderr=self._stderr.build_output(),
            ending=self._ending,
            seconds=self._loop.time() - self._begun,
            note=self._note,
        )

    async def wait_for_end(self, seconds: float) -> None:
        """Wait until the command has ended, but no longer than this."""
        if seconds > 0:
            await asyncio.wait((self._ended,), timeout=seconds)

    @property
    def _exit_code(self) -> int:
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def take_output(self) -> JobOutput:
        """Return the output since the last call of this method, and the exit code if the command has ended."""
        code = self._exit_code if self.has_ended else None
        return JobOutput(
            stdout=self._stdout.take_new(),
            stderr=self._stderr.take_new(),
            exit_code=code,
            ending=self._ending,
            note=self._note,
        )

    async def end(self, ending: ShellEnding) -> None:
        """End the command and all that it started: SIGTERM, two seconds, SIGKILL. Waits until they are gone."""
        self._begin_end(ending)
        cancelled = False
        while not self._ended.done():
            try:
                await asyncio.shield(self._ended)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    def _begin_end(self, ending: ShellEnding) -> None:
        if self._ender is None and not self._ended.done() and self._process.returncode is None:
            self._ending = ending
            self._ender = asyncio.ensure_future(self._end_tree())

    async def _end_tree(self) -> None:
        if self._control is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control, b".")  # the supervisor does the rest
            return
        inside = list_descendants(self._process.pid)[1:]  # the first is the sandbox's own: it would end at once
        signal_processes(inside, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS if inside else 0):
                await asyncio.shield(self._ended)
        if not self._ended.done():
            self._kill_tree()

    def _kill_tree(self) -> None:
        """Kill the sandbox with all that is in it: a part that is still being set up would not end with the rest."""
        self._answer_mark(may_start=False)
        inside = list_descendants(self._process.pid)
        self._process.kill()
        signal_processes(inside, signal.SIGKILL)
        if self._start_mark:  # it has not started: without a reader, it never does
            for fd in list(self._captures):
                self._close_stream(fd)

    async def _limit_processes(self, most: int) -> None:
        """End a command that has started too many processes, where the kernel does not count them."""
        while not self._ended.done():
            await SYSTEM_CLOCK.sleep(_COUNT_SECONDS)
            if len(list_descendants(self._process.pid)) > most:
                self._kill_tree()
                return

    def _capture(self, stream: IO[bytes] | None, kept: SpoolLimits, suffix: str) -> OutputCapture:
        if stream is None:
            raise ConfigError("the process was started without pipes for its output")
        fd = os.dup(stream.fileno())
        stream.close()
        os.set_blocking(fd, False)
        capture = self._captures[fd] = OutputCapture(kept.keep_bytes, kept.spool_file + suffix, kept.spool_bytes)
        self._loop.add_reader(fd, self._read, fd)
        return capture

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        capture = self._captures[fd]
        if not data:
            self._close_stream(fd)
            return
        if self._start_mark and capture is self._stderr:
            data, self._start_mark = data.removeprefix(self._start_mark), b""
            self._answer_mark(may_start=self._ender is None and self._is_as_planned())
        capture.add(data)
        if capture.is_full:
            self._begin_end("output")
            self._close_stream(fd)  # the command gets SIGPIPE if it goes on

    def _is_as_planned(self) -> bool:
        """Return True if everything in the sandbox is mounted as planned, and tell the model if it is not."""
        path = self._check(self._process.pid) if self._check is not None else ""
        if path:
            text = f"another command has exchanged {path} meanwhile, so this one was not started: stop the other first"
            self._stderr.add(f"{text}\n".encode("utf-8", "surrogateescape"))
        return not path

    def _answer_mark(self, *, may_start: bool) -> None:
        """Let an announced command begin; or end everything in its sandbox, also if it has not begun."""
        if self._answer_pipe is None:
            return
        if may_start:
            self._has_begun = True
            with contextlib.suppress(BrokenPipeError):
                os.write(self._answer_pipe, b"\n")
            return
        os.close(self._answer_pipe)
        self._answer_pipe = None

    def _close_stream(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        os.close(fd)
        self._captures.pop(fd).close()
        if not self._captures:
            _settle(self._drained)

    async def _watch(self) -> None:
        """Wait for the process, then for its last output; then release everything."""
        try:
            await wait_for_exit(self._process)
            if self._captures:
                await asyncio.wait((self._drained,), timeout=_DRAIN_SECONDS)
            if (finish := self._take_finish()) is not None:
                self._note = await asyncio.to_thread(finish)
        except Exception as error:  # noqa: BLE001 - whatever it is: the command ends, and says why
            self._stderr.add(f"\n[ended, because it could not be watched: {type(error).__name__}: {error}]\n".encode())
        finally:
            if self._process.poll() is None:  # the event loop is being closed
                if self._control is None:
                    self._kill_tree()
                self._close_control()  # a supervisor that was killed could not end the others
                self._process.wait()
            if self._is_supervised and self._process.returncode < 0:
                kill_session(self._process.pid)  # the command has killed its supervisor, which could not end the rest
            for fd in list(self._captures):
                self._close_stream(fd)
            self._answer_mark(may_start=False)
            self._deadline.cancel()
            if self._counter is not None:
                self._counter.cancel()
            self._close_control()
            self._finish_at_last()
            if self._guard is not None:
                if not self._has_begun:
                    self._guard.note_failed_start()
                self._guard.release()
            _settle(self._ended)

    def _take_finish(self) -> Callable[[], str] | None:
        finish, self._finish = self._finish, None
        return finish

    def _finish_at_last(self) -> None:
        """Finish a command whose event loop is being closed: what it has planted does not stay for that."""
        if (finish := self._take_finish()) is not None:
            with contextlib.suppress(Exception):
                self._note = finish()

    def _close_control(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            os.close(control)


def _spawn(
    words: Sequence[str], stdin: str, folder: str, env: Mapping[str, str], *fds: int
) -> "subprocess.Popen[bytes]":
    """Start a process in a new session, with pipes for its output."""
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_write_stdin(stdin)) if stdin else subprocess.DEVNULL
        return _open_process(words, source, folder, env, fds)


def _spawn_announced(
    words: Sequence[str], stdin: str, folder: str, env: Mapping[str, str], *fds: int
) -> "tuple[subprocess.Popen[bytes], int]":
    """Start an announced command; return its process, and the pipe that answers its mark."""
    read, write = os.pipe()
    try:
        with contextlib.ExitStack() as stack:
            if stdin:
                file = stack.enter_context(_write_stdin(stdin))
                words, fds = replace_stdin(words, file.fileno()), (*fds, file.fileno())
            return _open_process(words, read, folder, env, fds), write
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)


@contextlib.contextmanager
def _write_stdin(text: str) -> Generator[IO[bytes]]:
    with _open_nameless_file() as file:
        file.write(text.encode("utf-8", "surrogatepass"))
        file.seek(0)
        yield file


def _open_nameless_file() -> IO[bytes]:
    """Open a new file without a name; where the system can, it is on no disk: the command could write more there."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("stdin"), "w+b")
    return tempfile.TemporaryFile()


def _open_process(
    words: Sequence[str], stdin: int | IO[bytes], folder: str, env: Mapping[str, str], fds: Sequence[int]
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - running what it is given is its purpose
        list(words),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=dict(env),
        start_new_session=True,
        pass_fds=fds,
        bufsize=0,
    )


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
