"""Check what changed, in the minute before a commit: ruff, mypy, and the tests of the changed files.

    python -m scripts.check            what differs from the last commit; without any, what this branch has added
    python -m scripts.check --list     only say which tests would run

`make check` calls it. mypy remembers what it has checked in .mypy_cache. For `src/perdure/x/y.py` the tests are
`tests/x/test_y*.py`, or those of the folder when none has that name, or of a folder above it; a test that changed runs
itself. After 40 s the rest of them is left to `make test`, and so are budgets, searches for faults, and whatever else
uses what changed.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
MAIN_BRANCHES = ("origin/main", "main", "origin/master", "master")
MARKS = "not budget and not faults"
SECONDS = 40.0
"""After this the tests that are left are not waited for."""
NO_TESTS = 5
"""What pytest ends with when all tests of a file are marked."""


def git(*arguments: str, root: Path = ROOT) -> list[str]:
    """Return the lines that git prints, or none when it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files(root: Path = ROOT) -> list[str]:
    """Return the files that differ from the last commit, new ones too; if none do, what this branch has changed."""
    changed = [*git("diff", "--name-only", "HEAD", root=root)]
    changed += git("ls-files", "--others", "--exclude-standard", root=root)
    if not changed:
        bases = [base for branch in MAIN_BRANCHES for base in git("merge-base", "HEAD", branch, root=root)]
        changed = git("diff", "--name-only", bases[0], "HEAD", root=root) if bases else []
    return sorted(path for path in set(changed) if (root / path).exists())


def find_tests(path: str, root: Path = ROOT) -> list[str]:
    """Return the tests of one changed file: those that bear its name, or else those of its folder."""
    file = Path(path)
    if file.suffix != ".py":
        return []
    if file.parts[0] == "tests":
        return [path] if file.name.startswith("test_") else []
    if file.parts[:2] == ("src", "perdure"):
        folder = Path("tests", *[part.lstrip("_") for part in file.parts[2:-1]])
    elif file.parts[0] in {"scripts", "bench"}:
        folder = Path("tests", *file.parts[:-1])
    else:
        return []
    above = [each for each in folder.parents if each.parts[1:]]  # a package may be tested in the folder of another one
    places = [] if file.stem.startswith("__") else [folder, *above]
    patterns = [f"{place}/test_{file.stem}*.py" for place in places]
    if folder != Path("tests"):  # or in files that begin with its name
        patterns.insert(1, f"{folder.parent}/test_{folder.name}_{file.stem}*.py")
        patterns.append(f"{folder.parent}/test_{folder.name}*.py")
    patterns += [f"{place}/test_*.py" for place in (folder, *above)]
    found = (sorted(root.glob(pattern)) for pattern in patterns)
    return [str(test.relative_to(root)) for test in next(filter(None, found), [])]


def find_all_tests(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the tests of all changed files, each once; first the tests that changed themselves."""
    changed = sorted(changed, key=lambda path: not path.startswith("tests/"))
    return list(dict.fromkeys(test for path in changed for test in find_tests(path, root)))


def run(what: str, *command: str, seconds: float | None = None) -> bool:
    """Run a command with its output shown, for so long at most. Return False if it failed."""
    started = time.monotonic()
    print(f"check: {what}", flush=True)
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            exit_code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
            print(f"check: nothing failed in {seconds:.0f} s; the rest is left to `make test`", flush=True)
            return True
    passed = exit_code in {0, NO_TESTS}
    verdict = "passed" if passed else f"failed with exit code {exit_code}"
    print(f"check: {what} {verdict} in {time.monotonic() - started:.0f} s", flush=True)
    return passed


def main(*arguments: str) -> int:
    """Check; return the exit code."""
    changed = changed_files()
    tests = find_all_tests(changed)
    if "--list" in arguments:
        print(*tests, sep="\n")
        return 0
    ruff = str(BIN / "ruff")
    passed = [
        run("ruff", ruff, "check", "--quiet", "."),
        run("layout", ruff, "format", "--quiet", "--check", "."),
        run("mypy", str(BIN / "mypy"), "--no-error-summary"),
    ]
    if tests:
        pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-m", MARKS, *tests]
        passed.append(run(f"the tests in {len(tests)} files", *pytest, seconds=SECONDS))
    else:
        print(f"check: no tests belong to the {len(changed)} files that changed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
