"""`perdure sessions export` and `import`: sessions as files."""

import json
import stat
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import ConfigError
from perdure._cli.sessions.transfer import _get_user_name, write_file_atomically
from perdure._runtime import transfer

pytestmark = pytest.mark.usefixtures("kept")


def entries(perdure, session_id) -> str:
    return perdure("sessions", "show", session_id, "--json").stdout


def test_what_is_exported_can_be_imported_elsewhere(perdure, tmp_path):
    result = perdure("sessions", "export", "beta", "-o", "beta.json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("session beta is exported to beta.json: 10 entries, ")
    assert stat.S_IMODE((tmp_path / "beta.json").stat().st_mode) == 0o600
    there = ["--store", f"sqlite:{tmp_path}/elsewhere.db"]
    result = perdure("sessions", "import", "--trusted", "beta.json", *there)
    assert (result.exit_code, result.stdout) == (0, "beta\n")
    *copied, imported = perdure("sessions", "show", "beta", "--json", *there).stdout.splitlines()
    assert copied == entries(perdure, "beta").splitlines()
    assert json.loads(imported)["event"]["kind"] == "session_imported"


def test_a_session_goes_through_a_pipe(perdure):
    document = perdure("sessions", "export", "beta").stdout
    assert document.isascii()
    assert json.loads(document)["session_id"] == "beta"
    result = perdure("sessions", "import", "-", "--as", "copy", stdin=document)
    assert (result.exit_code, result.stdout) == (0, "copy\n")
    shown = perdure("sessions", "show", "copy").stdout
    assert shown.startswith("imported by ")
    assert "from session beta, without grants, settings, questions and jobs: sha256 " in shown
    assert "labels: imported" in shown


def test_programs_are_told_what_was_done(perdure, tmp_path):
    done = json.loads(perdure("sessions", "export", "beta", "-o", "b.json", "--json").stdout)
    assert done == {
        "session_id": "beta",
        "file": "b.json",
        "entries": 10,
        "bytes": (tmp_path / "b.json").stat().st_size,
    }
    made = json.loads(perdure("sessions", "import", "b.json", "--as", "copy", "--json").stdout)
    assert made["session_id"] == "copy"
    assert made["entries"] == made["imported"]["entries"]
    assert len(made["imported"]["digest"]) == 64


def test_a_file_is_replaced_only_if_that_is_asked_for(perdure, tmp_path):
    (tmp_path / "b.json").write_text("mine", encoding="utf-8")
    result = perdure("sessions", "export", "beta", "-o", "b.json")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: 'b.json' exists already: name another file")
    assert (tmp_path / "b.json").read_text(encoding="utf-8") == "mine"
    assert perdure("sessions", "export", "beta", "-o", "b.json", "--force").exit_code == 0
    assert json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))["session_id"] == "beta"
    assert [each.name for each in tmp_path.iterdir() if "unfinished" in each.name] == []


def test_a_session_that_is_there_is_left_as_it_is(perdure):
    perdure("sessions", "export", "beta", "-o", "b.json")
    before = entries(perdure, "alpha")
    for arguments in ([], ["--as", "alpha"]):
        result = perdure("sessions", "import", "b.json", *arguments)
        assert (result.exit_code, result.stdout) == (73, "")
    assert entries(perdure, "alpha") == before


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (["export", "nobody"], None, 66, "there is no session 'nobody'"),
        (["export", "beta", "-o", "no/such/folder/b.json"], None, 74, "No such file or directory"),
        (["import", "missing.json"], None, 2, "'missing.json' cannot be read: No such file or directory"),
        (["import", "-"], "not json", 2, "this is no session"),
        (["import", "-"], "", 2, "this is no session"),
        (["import", "-"], '{"format": "else", "version": 1, "session_id": "x", "entries": []}', 2, "'else'"),
    ],
)
def test_what_cannot_be_moved_says_why(perdure, arguments, stdin, code, message):
    result = perdure("sessions", *arguments, stdin=stdin)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_came_into_being_meanwhile_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure._cli.sessions.transfer._check_free", lambda _path, **_: None)
    (tmp_path / "b").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="was created meanwhile"):
        write_file_atomically(str(tmp_path / "b"), b"ours", replace=False)
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["b"]
    assert (tmp_path / "b").read_text(encoding="utf-8") == "mine"


def test_a_disk_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    (tmp_path / "b").write_text("before", encoding="utf-8")
    with pytest.raises(OSError, match="No space left"):
        write_file_atomically(str(tmp_path / "b"), b"ours", replace=True)
    assert (tmp_path / "b").read_text(encoding="utf-8") == "before"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["b"]


def test_who_imports_a_session_is_not_known_on_every_system(monkeypatch):
    def fail() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", fail)
    assert _get_user_name() == ""
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    assert _get_user_name() == "ann"


def test_what_an_import_dropped_and_noted_is_printed_in_order(perdure, monkeypatch):
    document = perdure("sessions", "export", "beta").stdout
    do_import = transfer.import_session

    async def import_session(*given: Any, **options: Any) -> Any:
        report = await do_import(*given, **options)
        return replace(report, dropped={"b": 2, "a": 1}, notes=("one\ntwo",))

    monkeypatch.setattr(transfer, "import_session", import_session)
    result = perdure("sessions", "import", "-", "--as", "copy", stdin=document)
    assert (result.exit_code, result.stdout) == (0, "copy\n")
    assert result.stderr.splitlines() == [
        "dropped 1 a",
        "dropped 2 b",
        "one␊two",
        "session copy is imported; show it with: perdure sessions show copy",
    ]
