"""Every engine is killed with its process: no effect of its calls happens twice, and the answer is the same."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.engines.roles import ENGINES

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 270.0


def sweep(
    folder: Path, step: int, engines: Sequence[str], *points: str, seconds: float = PATIENCE
) -> tuple[list[str], dict[str, int]]:
    """What went wrong, and the number of kills of each engine."""
    command = [sys.executable, "-m", "tests.faults.engine_session", str(folder), str(step), ",".join(engines), *points]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=True).stdout
    counts = [line.split()[1:] for line in out.splitlines() if line.startswith("kills ")]
    wrong = [line for line in out.splitlines() if not line.startswith("kills ")]
    return wrong, {engine: int(count) for engine, count in counts}


@pytest.mark.timeout(300)  # many processes, one after the other, perhaps on a busy machine
def test_an_engine_that_is_killed_after_an_append_repeats_no_effect(tmp_path: Path) -> None:
    wrong, kills = sweep(tmp_path, 7, ENGINES, "store.append.after_commit")
    assert wrong == []
    assert all(kills[engine] >= 1 for engine in ENGINES)


@pytest.mark.timeout(300)
def test_a_planner_that_is_killed_around_an_effect_repeats_none(tmp_path: Path) -> None:
    wrong, kills = sweep(tmp_path, 2, ["planner"], "loop.intent_stored", "loop.effect_done", "question.answered")
    assert wrong == []
    assert kills["planner"] >= 3


@pytest.mark.skipif(os.environ.get("PERDURE_SEARCH") != "long", reason="the long form of the tests above")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.timeout(900)
def test_an_engine_that_is_killed_at_every_place_repeats_no_effect(tmp_path: Path, engine: str) -> None:
    wrong, kills = sweep(tmp_path, 1, [engine], seconds=850)
    assert wrong == []
    assert kills[engine] >= 10
