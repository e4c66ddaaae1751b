"""Which programs a program and all its descendants start, inside a sandbox and outside, as strace sees it.

A process is inside if it, or one above it, was made with a mount namespace of its own (`CLONE_NEWNS`), which is what
bubblewrap does. Every traced process must have been seen to be made, so that none is counted as inside by mistake.
Numbers of processes are used again while the trace goes on, so its lines are read in their order. Of a process whose
number is given away at once strace may not tell the end: what is told since the call that makes the next one began is
of the next one.
"""

import bisect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

CALLS = "execve,execveat,clone,clone3,fork,vfork,unshare,setns"
_LINE = re.compile(r"(\d+) +(.*)")
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>")
_STARTED = re.compile(r'exec(?:ve\(|veat\(\S+ )"((?:[^"\\]|\\.)*)", \[(.*?)\](?:\.\.\.)?,')
_MADE = re.compile(r"(clone3?|v?fork)\(.*\)\s+= (\d+)(?: /\* (\d+) in strace's PID NS \*/)?")
_SEPARATED = re.compile(r"unshare\([^)]*CLONE_NEWNS.*\s+= 0$|setns\(.*\s+= 0$")


class Started(NamedTuple):
    """A program that a process started, or tried to."""

    program: str
    words: str
    is_inside: bool
    has_run: bool
    """False if there was no such program: one that is looked for along PATH is tried in each folder."""


@dataclass(eq=False)
class _Process:
    """One process of the trace; another one can have its number later."""

    maker: "_Process | None" = None
    is_separate: bool = False
    has_ended: bool = False
    calls: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    """Where in the trace each of these calls is."""
    made: list[tuple[int, "_Process"]] = field(default_factory=list)
    """What it made, and where."""

    def split(self, line: int) -> "_Process":
        """Give up what is told since a line; return the process with the same number that this is told of."""
        kept = bisect.bisect(self.lines, line)
        other = _Process(calls=self.calls[kept:], lines=self.lines[kept:])
        other.made = [(at, each) for at, each in self.made if at > line]
        del self.calls[kept:], self.lines[kept:]
        for _, each in other.made:
            each.maker = other
        return other

    @property
    def is_inside(self) -> bool:
        """True if it, or a process above it, was made with a mount namespace of its own."""
        return self.is_separate or (self.maker is not None and self.maker.is_inside)


def trace_programs(
    words: Sequence[str], trace: Path, env: Mapping[str, str], *, cwd: Path
) -> tuple[str, list[Started]]:
    """Run a command line; return its output, and every program that was started below it."""
    strace = shutil.which("strace")
    assert strace is not None
    line = [
        strace, "-f", "--seccomp-bpf", "--quiet=attach,personality", "-s", "400", "-e", "signal=none",
        "-e", f"trace={CALLS}", "--decode-pids=pidns", "-o", str(trace),
    ]  # fmt: skip
    done = subprocess.run(
        [*line, *words], cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, read_trace(trace.read_text(errors="replace").splitlines())


def read_trace(lines: Sequence[str]) -> list[Started]:
    """Return the programs that were started, by the lines of strace."""
    found: list[Started] = []
    processes = _read_processes(lines)
    unseen = [each for each in processes[1:] if each.maker is None]
    assert not unseen, f"{len(unseen)} processes were not seen to be made: {[each.calls[:2] for each in unseen[:5]]}"
    for process in processes:
        for call in process.calls:
            assert process.is_inside or not _SEPARATED.match(call), call
            if started := _STARTED.match(call):
                found.append(Started(started[1], started[2], process.is_inside, call.endswith(" = 0")))
    return found


def _read_processes(lines: Sequence[str]) -> list[_Process]:
    """Return all processes with what they called, the first one first."""
    processes: list[_Process] = []
    last: dict[str, _Process] = {}

    def find(number: str) -> _Process:
        """Return the process that has a number now, if one with it has not ended."""
        if number not in last or last[number].has_ended:
            last[number] = _Process()
            processes.append(last[number])
        return last[number]

    def find_made(number: str, since: int) -> _Process:
        """Return the process that was made by a call which began at a line. It may have been seen before, and ended."""
        process = last.get(number)
        if process is None or process.maker is not None:
            last[number] = _Process() if process is None or process.has_ended else process.split(since)
            processes.append(last[number])
        return last[number]

    for begun, line, number, call in _join_calls(lines):
        process = find(number)
        process.calls.append(call)
        process.lines.append(line)
        process.has_ended |= call.startswith("+++ ")
        if made := _MADE.match(call):
            child = find_made(made[3] or made[2], begun)
            child.maker, child.is_separate = process, "CLONE_NEWNS" in call
            process.made.append((line, child))
    return processes


def _join_calls(lines: Sequence[str]) -> Iterator[tuple[int, int, str, str]]:
    """Yield where a call begins and ends, the number of its process, and the call; also if others interrupt it."""
    begun: dict[str, tuple[int, str]] = {}
    for at, line in enumerate(lines):
        matched = _LINE.fullmatch(line)
        assert matched is not None, line
        number, text = matched.groups()
        if text.endswith(_UNFINISHED):
            begun[number] = at, text.removesuffix(_UNFINISHED)
        elif resumed := _RESUMED.match(text):
            start, first = begun.pop(number, (at, ""))
            yield start, at, number, first + text[resumed.end() :]
        else:
            yield at, at, number, text


def build_environment(**more: str) -> dict[str, str]:
    """Return the environment of a traced program."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    own = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)])
    return {**kept, "PYTHONPATH": own, "PYTHONDONTWRITEBYTECODE": "1", **more}
