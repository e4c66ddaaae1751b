"""bench/peers: the libraries of others are installed apart, measured in turns, and left out by name when they fail."""

import json
import re
import sys
from pathlib import Path

import pytest

from bench.peers import __main__ as program
from bench.peers import catalogue, comparison, environments, running, trial
from bench.peers.catalogue import HAND, PEERS, PERDURE, REQUIREMENTS, ROOT, Peer
from bench.peers.comparison import QUICK, ContestantFigures, keep_best
from bench.peers.comparison_charts import PICTURES, draw_picture
from bench.peers.comparison_tables import write_tables


def result(peer: Peer, **figures: float) -> ContestantFigures:
    return ContestantFigures(peer, "1.0", figures, "SQLite")


# -- the libraries -----------------------------------------------------------------------------------------------------


def test_every_library_has_its_agent_and_pinned_packages():
    assert {peer.requirements for peer in PEERS} == set(REQUIREMENTS.glob("*.txt"))
    for peer in (HAND, PERDURE, *PEERS):
        assert (ROOT / "bench" / "peers" / f"{peer.module}.py").is_file()
    for path in REQUIREMENTS.glob("*.txt"):
        assert [
            line for line in path.read_text("utf-8").split() if not re.fullmatch(r"[\w.\[\]-]+==[\w.]+", line)
        ] == []


def test_a_library_is_ready_when_the_packages_of_its_file_are_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", tmp_path)
    peer = PEERS[0]
    assert not peer.is_ready
    (tmp_path / peer.name).mkdir()
    stamp = tmp_path / peer.name / "installed.txt"
    stamp.write_text("another==1.0\n", "utf-8")
    assert not peer.is_ready
    stamp.write_text(peer.requirements.read_text("utf-8"), "utf-8")
    assert peer.is_ready


def test_an_unknown_library_is_refused_with_those_that_are_known(capsys):
    assert environments.main("langflow") == 2
    assert "pydantic-ai" in capsys.readouterr().err


def test_a_library_that_cannot_be_installed_is_named_with_the_reason_and_left_out(tmp_path, monkeypatch, capsys):
    def fail(*command: str) -> None:
        Path(command[-1]).mkdir(parents=True, exist_ok=True)
        raise environments.InstallError("no such package")

    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "envs")
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", tmp_path / "envs")
    monkeypatch.setattr(environments, "run", fail)
    assert environments.main("agno") == 0
    assert "agno cannot be installed here, and is left out: no such package" in capsys.readouterr().out
    assert not (tmp_path / "envs" / "agno").exists()


def test_a_command_that_fails_tells_the_end_of_its_output():
    with pytest.raises(environments.InstallError, match=r"^not today$"):
        environments.run(sys.executable, "-c", "raise SystemExit('something\\nnot today')")


# -- the comparison ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port():
    """A server that is shared by the trials of this module."""
    with running.serve() as port:
        yield port


@pytest.mark.parametrize("module", ["with_hand", "with_perdure"])
@pytest.mark.parametrize(
    ("part", "keys"),
    [
        ("turns", {"early_us", "late_us", "delta_us", "heard", "crowd_s"}),
        ("runs", {"answer_us", "tool_run_us", "kept_us", "stored_us", "long_us"}),
        ("memory", {"session_kib"}),
        ("first", {"first_ms"}),
    ],
)
async def test_every_part_of_a_contestant_can_be_measured(module, part, keys, port):
    told = await trial.main(module, "prepare", part, port, json.dumps(QUICK.sizes))
    assert set(told) == {*keys, "store_kind"}
    assert all(float(told[key]) >= 0 for key in keys - {"session_kib"})


async def test_a_contestant_that_does_not_call_its_tool_is_not_compared(port, monkeypatch):
    monkeypatch.setattr(trial, "stamps", [])  # another list than the one that the tool appends to
    with pytest.raises(RuntimeError, match="called 0 times"):
        await trial.main("with_hand", "prepare", "turns", port, json.dumps(QUICK.sizes))


def test_contestants_are_measured_in_turns_and_printed_with_their_versions(tmp_path, monkeypatch, capsys):
    asked: list[tuple[str, str]] = []

    def measure(peer: Peer, part: str, *_: object) -> dict[str, object]:
        asked.append((peer.name, part))
        return {f"{part}_us": float(len(asked)), "store_kind": "SQLite"}

    monkeypatch.setattr(comparison, "run_trial", measure)
    monkeypatch.setattr(comparison, "cpu_ms", lambda code, _python: 10.0 if code == "pass" else 60.0)
    monkeypatch.setattr(program, "QUICK", QUICK._replace(rounds=2))
    path = tmp_path / "figures.json"
    assert program.main(["--quick", "--only", "by hand", "--only", "Perdure", "--json", str(path)]) == 0
    assert [name for name, part in asked if part == "turns"] == ["by hand", "Perdure", "by hand", "Perdure"]
    hand, ours = json.loads(path.read_text("utf-8"))["contestants"]
    assert hand["figures"]["import_ms"] == 50.0
    assert ours["figures"]["distributions"] >= 10
    assert f"Perdure {ours['version']}; by hand with aiohttp" in capsys.readouterr().out


def test_what_is_not_installed_or_fails_is_named_and_left_out(monkeypatch):
    said: list[str] = []
    missing = Peer("missing", "with_missing", "pass")
    broken = Peer("broken", "with_broken", "pass", is_installed_here=True)
    monkeypatch.setattr(comparison, "PEERS", (missing, broken))
    assert comparison.compare(["missing", "broken"], QUICK, said.append) == []
    assert said[0].startswith("missing is not installed, and left out: `make peers`")
    assert "with_broken" in said[-1]


def test_a_python_that_is_missing_is_an_error_of_the_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", tmp_path)
    with pytest.raises(running.TrialError, match="No such file"):
        running.run_python(PEERS[0], "-c", "pass")


def test_the_best_reading_counts():
    best = {"a": 2.0}
    keep_best(best, {"a": 3.0, "b": 1.0})
    keep_best(best, {"a": 1.5, "b": 4.0})
    assert best == {"a": 1.5, "b": 1.0}


@pytest.mark.parametrize(("values", "middle"), [([3, 1, 2], 2), ([4, 1, 2, 3], 2.5), ([7], 7)])
def test_the_middle_of_readings_is_their_median(values, middle):
    assert trial.median(values) == middle


def test_a_table_has_ratios_to_the_hand_written_loop_and_dashes_for_what_a_library_has_not():
    figures = [result(HAND, stored_us=500.0, kept_us=250.0), result(PERDURE, stored_us=1500.0)]
    text = write_tables(figures, "Python 3.13")
    assert "| by hand | 0.25 ms | 0.50 ms, SQLite | - | - |" in text
    assert "| Perdure | - | 1.50 ms, SQLite (3.00 x) | - | - |" in text
    assert text.startswith("Perdure 1.0; by hand with 1.0. Python 3.13.")


def test_tables_go_between_the_marks_of_the_page():
    page = f"a\n\n{program.BEGIN}\nold\n{program.END}\n\nb\n"
    assert program.replace_tables(page, "new\n") == f"a\n\n{program.BEGIN}\n\nnew\n\n{program.END}\n\nb\n"
    with pytest.raises(ValueError, match="begin"):
        program.replace_tables("a page", "new")


def test_every_picture_is_drawn_with_perdure_in_a_colour_of_its_own(tmp_path):
    keys = {key for picture in PICTURES for key in picture.keys}
    figures = [result(HAND, **dict.fromkeys(keys, 1.0)), result(PERDURE, **dict.fromkeys(keys, 2.0))]
    program.write_pictures(figures, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {picture.file for picture in PICTURES}
    assert draw_picture(PICTURES[0], figures).count('class="own"') == 1
