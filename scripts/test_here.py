"""Run the linters, type checkers and tests on the interpreter of .venv, as jobs side by side, two more than cores.

    python -m scripts.test_here              every job, then the budgets, alone
    python -m scripts.test_here core stores  these jobs; `unit` stands for all that run tests

`make test`, `make lint` and `make unit` call it. The longest jobs start first, then those that wait most, and last
those that only compute, so that no core is left without work at the end. There are two more of them than cores, because
several wait for processes and disks as much as they compute. Each prints its output when it ends, and all failures are
listed once more at the very end.

`core` counts the branches of `perdure._core`, which doubles the time of whatever runs, so only the tests in `COUNTED`
run there. Property-based tests are left out of it: every branch has to be covered by an example that is written down.
A folder of tests that no job names belongs to `rest`.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
PROGRESS = re.compile(r"[.sx]+ *(\[ *\d+%\])?")
FAILURE = re.compile(r"^(FAILED|ERROR) |^src/.* \d+%|: error: |Coverage failure|^\+* ?Timeout|is not allowed to import")

FOLDERS: Mapping[str, Sequence[str]] = {
    "faults": ["faults"],
    "models": ["models", "net", "wire"],
    "cli": ["cli"],
    "stores": ["stores"],
    "pages": ["architecture", "bench", "docs", "scripts"],
    "parts": [
        "coming_from",
        "configuring",
        "context",
        "credentials",
        "evaluating",
        "goals",
        "grading",
        "hosts",
        "interaction",
        "logs",
        "mcp",
        "mcp_server",
        "memory",
        "reviewing",
        "scheduling",
        "testing",
        "tracing",
    ],
}
"""The folders of tests that a job of that name runs."""

COUNTED = (
    "tests/core",
    "tests/runtime",
    "tests/files/test_confined_folder.py",
    "tests/security/test_callbacks.py",
    "tests/test_bad_input.py",
    "tests/test_extensions.py",
    "tests/test_shutdown.py",
)
"""The tests that together reach every branch of `perdure._core`."""

TRIALS = (
    "tests/faults/test_families.py",
    "tests/faults/test_kill.py",
    "tests/faults/test_outside.py",
    "tests/faults/test_questions.py",
    "tests/faults/test_races.py",
    "tests/faults/test_takeover.py",
)
"""The searches for faults that the warm processes of tests/faults/workshop.py carry out, in a job of their own."""

ATTACKS = (
    "tests/security",
    "tests/hosts/test_bubblewrap.py",
    "tests/hosts/test_command_environment.py",
    "tests/hosts/test_git_work_copies.py",
    "tests/hosts/test_kernel_file_covers.py",
    "tests/hosts/test_local_git.py",
    "tests/hosts/test_local_shell.py",
    "tests/hosts/test_read_only_sandbox.py",
    "tests/hosts/test_sandbox_placeholder_lock.py",
    "tests/hosts/test_secret_covers.py",
    "tests/hosts/test_shown_folders.py",
    "tests/hosts/test_system_call_filter.py",
)
"""The tests of attacks, and of what holds them up. When root runs the tests, another user runs these once more."""

LINTING = ("style", "types", "layers")
"""The jobs that run no tests."""


class Job(NamedTuple):
    """Commands that run one after another until one fails."""

    commands: Sequence[Sequence[str]]
    environment: Mapping[str, str] = {}


class Result(NamedTuple):
    """What became of a job."""

    name: str
    exit_code: int
    output: str
    seconds: float
    cpu_seconds: float
    """Of its processes; on a loaded machine this alone can be compared."""
    ended: float = 0.0
    """By the monotonic clock: the job that ends last shows how long one core has had no work."""

    @property
    def failures(self) -> list[str]:
        """The lines of its output that name what failed."""
        return [line for line in self.output.splitlines() if FAILURE.search(line)]


def folders(name: str) -> list[str]:
    """Return the paths of the folders that the job of this name runs."""
    return [f"tests/{folder}" for folder in FOLDERS[name]]


def ignore(paths: Iterable[str]) -> list[str]:
    """Return pytest's options to leave these paths out."""
    return [f"--ignore={path}" for path in paths]


def pytest(*arguments: str, marks: str = "not budget") -> list[str]:
    """Return the command that runs tests."""
    return [*PYTEST, "-m", marks, *arguments]


def files_with(text: str, outside: Sequence[str] = ()) -> list[str]:
    """Return the files of tests that contain a text: reading all files is quicker than letting pytest import them."""
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if text in path.read_text("utf-8")]
    return sorted(
        str(path.relative_to(ROOT)) for path in paths if not any(path.is_relative_to(ROOT / each) for each in outside)
    )


def jobs() -> dict[str, Job]:
    """Return every job by its name: those that take longest first, then those that wait most."""
    named = [path for name in FOLDERS for path in folders(name)]
    coverage = str(BIN / "coverage")
    counted = pytest("-p", "scripts.uncounted_collection", *COUNTED, marks="not budget and not hypothesis")
    other = Job([[sys.executable, "-m", "scripts.as_another_user", *ATTACKS]])
    properties = [file for file in files_with("hypothesis", named) if is_counted(file)]
    return {
        "parts": Job([pytest(*folders("parts"))]),
        "rest": Job([pytest("tests", *ignore([*named, *COUNTED]))]),
        **({"another-user": other} if os.name == "posix" and os.geteuid() == 0 else {}),
        "faults": Job([pytest(*folders("faults"), *ignore(TRIALS))]),
        "trials": Job([pytest(*TRIALS)]),
        "stores": Job([pytest(*folders("stores"))]),
        "cli": Job([pytest(*folders("cli"))]),
        "pages": Job([pytest(*folders("pages"))]),
        "types": Job(type_checks()),
        "models": Job([pytest(*folders("models"))]),
        "core": Job([[coverage, "run", *counted[1:]], [coverage, "report"]]),
        "resumed": Job([pytest(*files_with("mark.resumed"), marks="resumed")], {"PERDURE_ALWAYS_RESUME": "1"}),
        "properties": Job([pytest(*properties, marks="not budget and hypothesis")]),
        "layers": Job([[str(BIN / "lint-imports"), "--no-logo"]]),
    }


def type_checks() -> list[list[str]]:
    """Return the commands of the type checkers: two for all of the source, and two more for what users write."""
    return [
        [str(BIN / "mypy"), "--no-error-summary"],
        [str(BIN / "basedpyright"), "--warnings"],
        [str(BIN / "ty"), "check", "--quiet", "--python", sys.executable],
        [str(BIN / "pyrefly"), "check", "--summary=none", f"--python-interpreter-path={sys.executable}"],
    ]


def is_counted(file: str) -> bool:
    """Return True for a file of tests that `core` runs."""
    return any(Path(file).is_relative_to(place) for place in COUNTED)


def stages() -> list[dict[str, Job]]:
    """Return the jobs by stage: what takes no time first, and last what measures, because nothing may run beside it."""
    ruff = str(BIN / "ruff")
    style = Job([[ruff, "check", "--quiet", "."], [ruff, "format", "--quiet", "--check", "."]])
    budgets = Job([pytest(*files_with("mark.budget"), marks="budget")])
    return [{"style": style}, jobs(), {"budgets": budgets}]


def run(name: str, job: Job) -> Result:
    """Run the commands of a job until one fails; its output is kept, and shown by the caller."""
    started, exit_code, cpu_seconds = time.monotonic(), 0, 0.0
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        for command in job.commands:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **job.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(process.pid, 0)
            exit_code = process.returncode = os.waitstatus_to_exitcode(status)
            cpu_seconds += usage.ru_utime + usage.ru_stime
            if exit_code != 0:
                break
        output.seek(0)
        ended = time.monotonic()
        return Result(name, exit_code, output.read(), ended - started, cpu_seconds, ended)


def show(result: Result, started: float) -> None:
    """Print how and when a job ended: all of its output, or its last line when that says enough."""
    verdict = f"failed with exit code {result.exit_code}" if result.exit_code else "passed"
    lines = result.output.strip().splitlines()
    if result.exit_code == 0:
        lines = [line for line in lines if not PROGRESS.fullmatch(line)]
    took = f"{result.seconds:.0f} s ({result.cpu_seconds:.0f} s of CPU)"
    print(f"test: {result.name} {verdict} in {took}, {result.ended - started:.0f} s after the start", flush=True)
    print(*[f"    {line}\n" for line in lines], sep="", end="", flush=True)


def run_all(chosen: Mapping[str, Job], workers: int, started: float) -> list[Result]:
    """Run jobs side by side, each when a worker is free; show each when it ends, with the time since the start."""
    results: list[Result] = []
    with ThreadPoolExecutor(workers) as threads:
        waiting = [threads.submit(run, name, job) for name, job in chosen.items()]
        for done in as_completed(waiting):
            results.append(done.result())
            show(results[-1], started)
    return results


def choose(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the jobs that are meant by these names; raise `ValueError` when there is no such job."""
    if unknown := [name for name in names if name not in {*known, "unit"}]:
        raise ValueError(f"no job is called {unknown[0]!r}: use unit, {', '.join(known)}")
    return [name for name in known if not names or name in names or ("unit" in names and name not in LINTING)]


def main(*names: str) -> int:
    """Run the named jobs, or all, until a stage has failed; return the exit code."""
    started, results, all_stages = time.monotonic(), list[Result](), stages()
    try:
        chosen = choose(names, [name for stage in all_stages for name in stage])
    except ValueError as error:
        print(f"test: {error}", file=sys.stderr)
        return 2
    print(f"test: {', '.join(chosen)}", flush=True)
    for stage in all_stages:
        named = {name: job for name, job in stage.items() if name in chosen}
        results += run_all(named, (os.cpu_count() or 1) + 2, started)
        if any(result.exit_code for result in results):
            break
    failed = [result for result in results if result.exit_code]
    for result in failed:
        print(f"test: {result.name} failed", *[f"    {line}" for line in result.failures], sep="\n")
    cpu_seconds = sum(result.cpu_seconds for result in results)
    took = f"{time.monotonic() - started:.0f} s ({cpu_seconds:.0f} s of CPU)"
    print(f"test: {len(results) - len(failed)} of {len(results)} jobs passed in {took}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
