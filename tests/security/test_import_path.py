"""A folder full of modules with the names of others: none of them is imported by a command that runs there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SRC = str(Path(__file__).parents[2] / "src")
MODULES = [
    *(
        "json",
        "asyncio",
        "re",
        "logging",
        "typing",
        "shlex",
        "secrets",
        "random",
        "socket",
        "ssl",
        "tomllib",
        "zoneinfo",
    ),
    *(
        "click",
        "msgspec",
        "apsw",
        "aiohttp",
        "yaml",
        "jsonschema_rs",
        "keyring",
        "botocore",
        "genai_prices",
        "unicodedata",
    ),
    *("sitecustomize2", "perdure_plugin", "readline", "termios", "difflib", "hashlib", "sqlite3", "concurrent"),
]
COMMANDS = [["--version"], ["doctor"], ["run", "-q", "Calculate 6 * 7"], ["sessions", "list"], ["config", "schema"]]
PROGRAMS = {
    "python -m": ["-m", "perdure"],
    "python -c": ["-c", "from perdure._cli.main import main; main()"],
}


@pytest.fixture
def planted(tmp_path):
    """A project with a module for each name, which leaves a trace when it is imported."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in MODULES:
        text = f"open({str(tmp_path / 'trace')!r}, 'a').write({name!r} + ' ')\nraise SystemExit(99)\n"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def run(folder, *arguments, python_path=SRC) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTHON", "COVERAGE"))
    }
    environment = {
        **kept,
        "PERDURE_HOME": str(folder.parent / "home"),
        "PERDURE_MODEL": "demo",
        "PYTHONPATH": python_path,
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_python_m_imports_nothing_from_the_folder_in_which_it_runs(planted, command):
    done = run(planted, "-m", "perdure", *command)
    assert done.returncode == 0, done.stderr
    assert not (planted.parent / "trace").exists()


@pytest.mark.parametrize("python_path", [f":{SRC}", f"{SRC}:", f"./:{SRC}"])
@pytest.mark.parametrize("program", [["-m", "perdure"], ["PERDURE"]])
def test_an_empty_entry_of_pythonpath_is_not_the_folder_in_which_the_command_runs(planted, program, python_path):
    """Which `PYTHONPATH=$PYTHONPATH:/lib` in the settings of a shell leaves, if it was not set before."""
    script = planted.parent / "perdure"
    script.write_text("from perdure._cli.entry import main\nraise SystemExit(main())\n", encoding="utf-8")
    named = [str(script) if each == "PERDURE" else each for each in program]
    done = run(planted, *named, "run", "-q", "Calculate 6 * 7", python_path=python_path)
    assert done.returncode == 0, done.stderr
    assert not (planted.parent / "trace").exists()


def test_the_processes_of_the_command_do_not_get_the_empty_entry_either(tmp_path):
    shown = "import os; from perdure._cli import main as m; m.root_command.main = lambda: print(os.environ); m.main()"
    done = run(tmp_path, "-c", shown, python_path=f":{SRC}:.")
    assert f"'PYTHONPATH': '{SRC}'" in done.stdout


def test_the_working_folder_is_not_on_the_path_of_the_command_however_it_is_begun(tmp_path):
    shown = (
        "import json, sys; from perdure._cli import main as m; "
        "m.root_command.main = lambda: print(json.dumps(sys.path)); "
    )
    done = run(tmp_path, "-c", f"{shown} m.main()")
    assert done.returncode == 0, done.stderr
    assert not {"", str(tmp_path), os.path.realpath(tmp_path)} & {*json.loads(done.stdout)}


def test_a_folder_that_the_user_named_stays(tmp_path):
    shown = (
        "import json, sys; from perdure._cli import main as m; "
        "m.root_command.main = lambda: print(json.dumps(sys.path)); "
    )
    done = run(tmp_path, "-P", "-c", f"{shown} m.main()")
    assert SRC in json.loads(done.stdout)
    done = run(Path(SRC), "-c", f"{shown} m.main()")
    assert SRC in json.loads(done.stdout)
