"""`perdure doctor`: is everything here that is needed?"""

import json
import sys
from types import SimpleNamespace

import pytest

from perdure import AuthFailed
from perdure._cli.services import doctor
from perdure.models import register


@pytest.fixture
def found(perdure):
    """Runs the doctor: its exit code, and each check by its name."""

    def run() -> tuple[int, dict[str, dict[str, str]]]:
        result = perdure("doctor", "--json")
        checks = [json.loads(line) for line in result.stdout.splitlines()]
        return result.exit_code, {check["name"]: check for check in checks}

    return run


def test_everything_is_looked_at(perdure):
    result = perdure("doctor")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert {line.split()[0] for line in lines} <= {"PASS", "WARN"}
    names = [line[6:].partition(":")[0] for line in lines]
    assert names[:5] == ["python", "perdure", "msgspec", "jsonschema-rs", "click"]
    assert names[5:8] == ["apsw", "event loop", "store"]
    assert names[-2:] == ["model demo", "terminal"]


def test_looking_makes_nothing(found, tmp_path):
    code, checks = found()
    assert code == 0
    assert checks["store"]["finding"].endswith("sessions.db, which the first session will create")
    assert not (tmp_path / "home").exists()


def test_sessions_are_counted(found, perdure):
    perdure("run", "Calculate 6 * 7")
    assert found()[1]["store"]["finding"].endswith("sessions.db, sessions kept: 1")


def test_a_store_that_cannot_be_used_is_a_failure(found, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "sessions.db").write_text("no database, but long enough to be looked at as one" * 20)
    (tmp_path / "home" / "sessions.db").chmod(0o600)
    code, checks = found()
    assert (code, checks["store"]["status"]) == (1, "fail")
    assert "it is no SQLite database" in checks["store"]["finding"]


def test_a_store_that_others_may_read_is_warned_about(perdure, tmp_path):
    perdure("run", "Calculate 6 * 7")
    (tmp_path / "home" / "sessions.db").chmod(0o644)
    result = perdure("doctor")
    assert result.exit_code == 0
    assert "WARN  store: other users may read " in result.stdout


def test_a_home_that_cannot_be_made_is_a_failure(found, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "file" / "home"))
    code, checks = found()
    assert (code, checks["store"]["status"]) == (1, "fail")
    assert checks["store"]["advice"] == "set PERDURE_HOME to a folder of your own"


def test_a_network_file_system_is_a_failure(found, monkeypatch):
    monkeypatch.setattr("perdure._stores.files.find_network_file_system", lambda _: "nfs4")
    code, checks = found()
    assert code == 1
    assert "lies on a network file system (nfs4)" in checks["store"]["finding"]


def test_an_old_sqlite_is_warned_about(found, monkeypatch):
    monkeypatch.setattr("apsw.sqlite_lib_version", lambda: "3.51.2")
    code, checks = found()
    assert (code, checks["apsw"]["status"]) == (0, "warn")
    assert "3.51.3" in checks["apsw"]["advice"]


def test_a_package_that_is_missing_is_a_failure(found, monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("no-such-package",))
    code, checks = found()
    assert (code, checks["no-such-package"]["advice"]) == (1, "pip install no-such-package")


def test_an_apsw_that_cannot_be_imported_is_a_failure(monkeypatch):
    monkeypatch.setitem(sys.modules, "apsw", None)
    assert doctor._check_sqlite().status == "fail"
    assert doctor._check_sqlite().advice == "pip install apsw"


def test_a_python_that_is_too_old_is_a_failure(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 14))
    assert doctor._check_python() == ("python", "fail", "3.10.14", "install Python 3.11 or later")


def test_a_model_that_cannot_be_used_says_why(found, monkeypatch):
    def refuse(name):
        raise AuthFailed("there is no key: set EXAMPLE_API_KEY")

    monkeypatch.setattr("perdure._models.registry._factories", {})
    register("example", refuse)
    code, checks = found()
    assert (code, checks["model example"]["status"]) == (0, "warn")
    assert checks["model example"]["finding"] == "there is no key: set EXAMPLE_API_KEY"


def test_it_says_whether_commands_have_a_sandbox(found, monkeypatch):
    monkeypatch.setattr("perdure._tools.sandbox.bubblewrap.find_bubblewrap", lambda: (("bwrap",), ""))
    assert found()[1]["commands"]["finding"] == "run in a sandbox (bubblewrap)"
    monkeypatch.setattr(
        "perdure._tools.sandbox.bubblewrap.find_bubblewrap", lambda: ((), "bubblewrap is not installed")
    )
    check = found()[1]["commands"]
    assert (check["status"], check["finding"]) == (
        "warn",
        "no sandbox, so that each command is asked about: bubblewrap is not installed",
    )
    monkeypatch.setattr("perdure._tools.shell.parser.has_parser", lambda: False)
    assert found()[1]["commands"]["advice"] == "to let them: pip install 'perdure[shell]'"


def test_an_encoding_without_most_letters_is_warned_about(shell):
    result = shell.run("doctor", environment={"PYTHONIOENCODING": "latin-1"})
    assert "WARN  terminal: nothing at a terminal, TERM=xterm, 120 columns, iso8859-1; set LANG" in result.stdout


@pytest.mark.parametrize(
    ("missing", "finding"),
    [({"rich"}, "rich is not installed"), ({"rich", "prompt_toolkit"}, "prompt_toolkit and rich are not installed")],
)
def test_packages_of_the_chat_that_are_missing_are_named(monkeypatch, missing, finding):
    monkeypatch.setattr(doctor, "_installed_version", lambda name: None if name in missing else "1")
    advice = "pip install 'perdure[chat]'; until then, perdure chat --plain"
    assert doctor._check_chat() == ("chat", "warn", finding, advice)


def test_the_chat_can_be_used_with_its_packages(monkeypatch):
    monkeypatch.setattr(doctor, "_installed_version", lambda _: "1")
    assert doctor._check_chat() == ("chat", "ok", "can be used: perdure", "")


def test_on_another_system_agents_run_no_commands(monkeypatch):
    monkeypatch.setattr("perdure._cli.services.doctor.os.name", "nt")
    assert doctor._check_commands() == ("commands", "ok", "agents run none on this system", "")


def stream(encoding: str = "UTF-8", *, is_terminal: bool = True) -> SimpleNamespace:
    """A stream with an encoding, which may be a terminal."""
    return SimpleNamespace(encoding=encoding, isatty=lambda: is_terminal)


@pytest.mark.parametrize(
    ("encoding", "status", "advice"),
    [("UTF-8", "ok", ""), ("ASCII", "warn", "set LANG to a UTF-8 locale, or letters are shown as numbers")],
)
def test_streams_at_a_terminal_are_named(monkeypatch, encoding, status, advice):
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdin", stream())
    monkeypatch.setattr(sys, "stdout", stream(encoding, is_terminal=False))
    monkeypatch.setattr(sys, "stderr", stream())
    finding = f"input, errors at a terminal, TERM=xterm, 70 columns, {encoding.lower()}"
    assert doctor._check_terminal() == ("terminal", status, finding, advice)
