"""A coding agent mends a failing test inside the sandbox, is killed in the middle, resumed, undone and redone."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.engines import SYSTEM_CLOCK
from perdure.hosts import LocalShell, ShellCommand, SnapshotFolder
from perdure.tools import FileHistory
from tests.faults.coding_session import RUN_TESTS, STEPS, build_agent, create_repository
from tests.seeds import chance

pytestmark = [pytest.mark.faults, pytest.mark.needs("bubblewrap"), pytest.mark.packages("tree_sitter_bash")]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 40.0
ONCE = ("looked", "mended", "tested")
"""What the commands write, each at most once."""
STATUSES = ("ok", "error", "unknown")
PLACES = ("loop.intent_stored=kill@1", "loop.effect_done=kill@3")
"""Before the first command, and after the edit."""
POINTS = (
    "loop.replied",
    "loop.intent_stored",
    "loop.effect_done",
    "store.append.before_commit",
    "store.append.after_commit",
)


@pytest.fixture
def place(tmp_path):
    create_repository(tmp_path / "repository")
    return tmp_path


def start(place, *, faults="", stays="") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.coding_session", str(place)],
        env={**os.environ, "PERDURE_FAULTS": faults, "CODING_STAYS": stays},
        stdout=subprocess.PIPE,
        text=True,
    )


def files_in(root: Path) -> dict[str, tuple[bytes, int]]:
    """The files that tools can change, with their contents and modes."""
    return {
        str(each.relative_to(root)): (each.read_bytes(), each.stat().st_mode)
        for each in root.rglob("*")
        if each.is_file() and ".git" not in each.parts and each.name != "ledger"
    }


async def run_tests(root: Path) -> int:
    async with LocalShell(root, sandbox="require") as shell:
        return (await shell.run(ShellCommand(line=RUN_TESTS))).exit_code


def list_commits(root: Path) -> list[str]:
    return subprocess.check_output(["git", "log", "--format=%s"], cwd=root, text=True).splitlines()


async def check_outcome(place: Path, before: dict[str, tuple[bytes, int]]) -> None:
    """Everything was done, nothing was done twice; it is undone and redone."""
    root = place / "repository"
    after = files_in(root)
    assert after["boat.py"] == (b"def oars(crew):\r\n    return crew * 2\r\n", before["boat.py"][1])
    assert after["notes/today.md"][0] == b"Mended the boat.\n"
    ledger = (root / "ledger").read_text().split() if (root / "ledger").exists() else []
    assert [each for each in ONCE if ledger.count(each) > 1] == []
    assert list_commits(root) in (
        ["Mend the boat", "Begin"],
        ["Begin"],
    )  # it may have been killed before the commit, or in it
    agent = build_agent(place)
    session = agent.session("s")
    history = FileHistory(session, SnapshotFolder(place / "snapshots"))
    assert {each.status for each in await history.undo()} == {"restored"}, await history.changes()
    assert files_in(root) == before
    assert not (root / "ledger").exists()
    assert await run_tests(root) == 1
    assert {each.status for each in await history.redo()} == {"restored"}
    assert files_in(root) == after
    assert await run_tests(root) == 0
    assert (root / "ledger").read_text().split() == ledger if ledger else not (root / "ledger").exists()
    await agent.store.aclose()


async def check_resumption(place: Path, before: dict[str, tuple[bytes, int]]) -> None:
    """Another process goes on, and ends with the tests passing in the sandbox."""
    resumed = start(place)
    assert resumed.communicate(timeout=PATIENCE)[0] == "done The test passes.\n"
    agent = build_agent(place)
    results = [each for message in await agent.session("s").messages() for each in message.tool_results]
    await agent.store.aclose()
    by_status = {status: [each.call_id for each in results if each.status == status] for status in STATUSES}
    assert sum(map(len, by_status.values())) == len(results) == len(STEPS) - 1
    assert by_status["error"] in ([], ["step_0"])  # the test that fails
    assert len(by_status["unknown"]) <= 1  # the call during which the process was killed
    assert results[-1].text == "1 passed" or by_status["unknown"] == [results[-1].call_id]
    await check_outcome(place, before)


@pytest.mark.parametrize("fault", PLACES)
async def test_a_session_that_was_killed_goes_on_with_each_effect_at_most_once(place, fault):
    before = files_in(place / "repository")
    killed = start(place, faults=fault)
    killed.communicate(timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL
    await check_resumption(place, before)


async def test_killed_anywhere_it_goes_on(place, long, tmp_path_factory, report):
    drawn = chance("coding session")
    for number in range(12 if long else 1):
        trial = place if number == 0 else tmp_path_factory.mktemp("trial")
        if number:
            create_repository(trial / "repository")
        before = files_in(trial / "repository")
        fault = f"{drawn.choice(POINTS)}=kill@{drawn.randint(1, 6)}"
        killed = start(trial, faults=fault)
        killed.communicate(timeout=PATIENCE)
        assert killed.returncode in {-signal.SIGKILL, 0}, fault  # some points are passed less often
        await (check_resumption if killed.returncode else check_outcome)(trial, before)
        report.append(f"a coding session, killed at {fault}: {'resumed' if killed.returncode else 'not reached'}")


def test_on_the_command_line_it_is_resumed_and_undone_too(place):
    root = place / "repository"
    before = files_in(root)
    home = {"PERDURE_HOME": str(place / "home"), "HOME": str(place), "PYTHONPATH": str(ROOT)}

    def perdure(*arguments, faults="") -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-m", "tests.faults.coding_session", "-", *arguments]
        env = {**os.environ, **home, "PERDURE_FAULTS": faults}
        return subprocess.run(
            words,
            check=False,
            cwd=root,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )

    killed = perdure("run", "-s", "s", "-m", "coder:one", "--yes", "Mend it.", faults="loop.effect_done=kill@4")
    assert killed.returncode == -signal.SIGKILL
    resumed = perdure("resume", "s", "--yes")
    assert (resumed.returncode, resumed.stdout) == (0, "The test passes.\n"), resumed.stderr
    after = files_in(root)
    assert sorted((root / "ledger").read_text().split()) == sorted(ONCE)
    assert list_commits(root) == ["Mend the boat", "Begin"]
    undone = perdure("files", "undo", "s")
    restored = ["ledger", "boat.py", "notes/today.md"]
    assert sorted(undone.stdout.splitlines()) == sorted([f"restored  {each}" for each in restored]), undone.stderr
    assert undone.stderr == ""
    assert files_in(root) == before
    assert perdure("files", "redo", "s").returncode == 0
    assert files_in(root) == after


async def test_killed_while_a_command_runs_in_the_sandbox_it_goes_on_without_the_command(place):
    before = files_in(place / "repository")
    marker = f"64{os.getpid()}"
    host = start(place, stays=f"sleep {marker}")
    try:
        await until(lambda: processes_with(marker))
    finally:
        host.kill()
        host.communicate(timeout=PATIENCE)
    await until(lambda: not processes_with(marker), seconds=2)
    await check_resumption(place, before)


async def until(condition, *, seconds=PATIENCE) -> None:
    """Wait until something is so, but not for ever."""
    async with asyncio.timeout(seconds):
        while not condition():
            await SYSTEM_CLOCK.sleep(0.01)


def processes_with(marker: str) -> list[str]:
    """The numbers of the processes with a word in their command lines."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes()
        except OSError:
            continue
        found += [each.parent.name] if marker.encode() in words and b"sleep" in words else []
    return found
