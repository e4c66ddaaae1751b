"""scripts/test_here.py: every test belongs to a job, jobs run side by side, and one failure fails the whole."""

import sys
from pathlib import Path

import pytest

from scripts import test_here
from scripts.test_here import Job


def job(code: str) -> Job:
    return Job([[sys.executable, "-c", code]])


@pytest.fixture
def made_up(monkeypatch):
    """Runs jobs that are made up, in three stages."""

    def run(*names: str, style: str = "", core: str = "", stores: str = "", budgets: str = "") -> int:
        middle = {"core": job(core), "stores": job(stores)}
        monkeypatch.setattr(test_here, "stages", lambda: [{"style": job(style)}, middle, {"budgets": job(budgets)}])
        return test_here.main(*names)

    return run


def test_every_folder_that_is_named_exists():
    named = [path for name in test_here.FOLDERS for path in test_here.folders(name)]
    assert [path for path in named if not (test_here.ROOT / path).is_dir()] == []
    assert len(set(named)) == len(named)


def test_every_folder_with_a_name_has_a_job():
    assert test_here.FOLDERS.keys() <= test_here.jobs().keys()


def test_whatever_no_job_names_is_run_by_the_rest():
    jobs = test_here.jobs()
    command, counted = jobs["rest"].commands[0], jobs["core"].commands[0]
    named = [path for name in test_here.FOLDERS for path in test_here.folders(name)]
    assert [each for each in command if each.startswith("--ignore")] == [
        f"--ignore={path}" for path in [*named, *test_here.COUNTED]
    ]
    assert "tests" in command
    assert "not budget" in command
    assert [each for each in counted if each.startswith("tests/")] == list(test_here.COUNTED)


def test_whatever_is_counted_exists_and_belongs_to_no_other_job():
    named = [Path(path) for name in test_here.FOLDERS for path in test_here.folders(name)]
    assert [path for path in test_here.COUNTED if not (test_here.ROOT / path).exists()] == []
    assert not [path for path in test_here.COUNTED if any(Path(path).is_relative_to(each) for each in named)]


def test_the_trials_are_all_that_use_the_warm_processes_and_run_once():
    jobs = test_here.jobs()
    using = [file for file in test_here.files_with("places(kind)") if file.startswith("tests/faults/")]
    assert sorted(test_here.TRIALS) == using
    assert [each for each in jobs["trials"].commands[0] if each.startswith("tests/")] == list(test_here.TRIALS)
    assert {f"--ignore={file}" for file in test_here.TRIALS} <= set(jobs["faults"].commands[0])


def test_a_test_that_is_not_counted_for_its_properties_runs_elsewhere():
    jobs = test_here.jobs()
    assert "not budget and not hypothesis" in jobs["core"].commands[0]
    assert "not budget and hypothesis" in jobs["properties"].commands[0]
    files = [each for each in jobs["properties"].commands[0] if each.endswith(".py")]
    assert "tests/core/test_argument_parsing.py" in files
    assert files == [file for file in test_here.files_with("hypothesis") if test_here.is_counted(file)]


def test_all_jobs_pass(made_up, capsys):
    assert made_up(stores="print('a word')") == 0
    output = capsys.readouterr().out
    assert "    a word\n" in output
    assert output.endswith(" s of CPU)\n")
    assert "4 of 4 jobs passed" in output


def test_one_failure_fails_the_whole_and_is_told_again_at_the_end(made_up, capsys):
    assert made_up(core="print('FAILED tests/x.py::test_y'); print('more'); raise SystemExit(3)") == 1
    output = capsys.readouterr().out
    assert "core failed with exit code 3" in output
    end = output[output.index("test: core failed\n") :]
    assert "FAILED tests/x.py::test_y" in end
    assert "more" not in end
    assert "stores passed" in output


def test_after_a_stage_that_failed_no_other_begins(made_up, capsys):
    assert made_up(style="raise SystemExit(1)") == 1
    assert "core passed" not in capsys.readouterr().out


def test_a_job_stops_at_the_first_command_that_fails():
    commands = [[sys.executable, "-c", code] for code in ("print(1)", "raise SystemExit(7)", "print(3)")]
    result = test_here.run("several", Job(commands))
    assert (result.exit_code, result.output) == (7, "1\n")


def test_jobs_run_side_by_side(tmp_path):
    """Each of two waits for the other."""
    code = "import pathlib, time; pathlib.Path({!r}).touch()\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)"
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    results = test_here.run_all({"one": job(code.format(one, two)), "two": job(code.format(two, one))}, 2, started=0.0)
    assert [result.exit_code for result in results] == [0, 0]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ((), ["style", "core", "layers"]),
        (("unit",), ["core"]),
        (("layers", "style"), ["style", "layers"]),
        (("unit", "style"), ["style", "core"]),
    ],
)
def test_jobs_are_chosen_by_name(names, chosen):
    assert test_here.choose(names, ["style", "core", "layers"]) == chosen


def test_an_unknown_job_is_refused_with_the_known_ones(made_up, capsys):
    assert made_up("cores") == 2
    assert capsys.readouterr().err == "test: no job is called 'cores': use unit, style, core, stores, budgets\n"
