"""The files of the command in its home, the store that is meant, and the commands that are named to go on."""

import stat
from hashlib import sha256

import pytest

from perdure import ConfigError, Session, SessionNotFound
from perdure._cli.home import (
    build_session_not_found,
    check_store_folder,
    describe_open_question,
    format_answer_commands,
    format_session_arguments,
    grants_path,
    resolve_store_spec,
    run_with_session,
    run_with_store,
    snapshots_path,
)
from perdure._io.home.paths import get_home_file_path
from perdure.events import QuestionAsked


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "new" / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "new" / "home"


def test_files_are_in_the_home_that_the_variable_names(home, tmp_path, monkeypatch):
    assert get_home_file_path("x") == str(home / "x")
    assert grants_path() == str(home / "grants.jsonl")
    for given, folder in (("~/mine", "person/mine"), ("", "person/.perdure")):
        monkeypatch.setenv("PERDURE_HOME", given)
        assert get_home_file_path("x") == str(tmp_path / folder / "x")


def test_each_store_has_snapshots_of_its_own(home, tmp_path):
    assert snapshots_path(f"sqlite:{home}/sessions.db") == str(home / "snapshots")
    digest = sha256(f"sqlite:{tmp_path}/x.db".encode()).hexdigest()[:16]
    for store in ("sqlite:x.db", f"sqlite:{tmp_path}/x.db", "sqlite:~/../x.db"):
        assert snapshots_path(store) == str(home / f"snapshots-{digest}")
    digest = sha256(f"file:{tmp_path}/x".encode()).hexdigest()[:16]
    assert snapshots_path("file:x") == str(home / f"snapshots-{digest}")
    digest = sha256(b"postgres:x").hexdigest()[:16]
    assert snapshots_path("postgres:x") == str(home / f"snapshots-{digest}")


def test_without_a_store_it_is_that_of_the_home_whose_parent_is_made(home):
    assert resolve_store_spec(None) == f"sqlite:{home}/sessions.db"
    assert home.parent.is_dir()
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700
    assert not home.exists()
    assert resolve_store_spec("") == f"sqlite:{home}/sessions.db"
    assert resolve_store_spec(None, "evals.db") == f"sqlite:{home}/evals.db"
    assert resolve_store_spec(f"sqlite:{home}/sessions.db") == f"sqlite:{home}/sessions.db"
    assert resolve_store_spec("memory:") == "memory:"


def test_a_home_that_cannot_be_made_is_left_to_the_store(home, tmp_path):
    (tmp_path / "new").write_text("a file")
    assert resolve_store_spec(None) == f"sqlite:{home}/sessions.db"


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_the_folder_of_a_store_that_was_named_has_to_be_there(kind, tmp_path):
    for resolve in (check_store_folder, resolve_store_spec):
        with pytest.raises(ConfigError) as raised:
            resolve(f"{kind}:no/x")
        folder = str(tmp_path / "no")
        assert str(raised.value) == (f"'{kind}:no/x': there is no folder {folder!r}; create it, or choose another path")
    (tmp_path / "no").mkdir()
    check_store_folder(f"{kind}:no/x")
    check_store_folder(f"{kind}:")
    check_store_folder("postgres:other/x")


def test_a_store_is_closed_after_the_work(monkeypatch):
    closed: list[str] = []

    class Store:
        async def aclose(self) -> None:
            closed.append("closed")

    monkeypatch.setattr("perdure._stores.open_store", lambda _: Store())

    async def work(store: object) -> str:
        assert closed == []
        return type(store).__name__

    assert run_with_store("memory:", work) == "Store"
    assert closed == ["closed"]

    async def fail(_: object) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        run_with_store("memory:", fail)
    assert closed == ["closed", "closed"]


def test_a_session_that_is_not_there_is_not_worked_with(home):
    async def work(_: object) -> None:
        raise AssertionError

    with pytest.raises(SessionNotFound) as raised:
        run_with_session(None, "s", work)
    assert (
        str(raised.value)
        == str(build_session_not_found("s", None))
        == (
            f"there is no session 's' in sqlite:{home}/sessions.db; `perdure sessions list --all` lists those that are "
            "there, and --store sqlite:PATH names another store"
        )
    )
    usual = f"sqlite:{home}/sessions.db"
    assert str(build_session_not_found("s", usual)) == str(build_session_not_found("s", None))
    assert "`perdure sessions list --all --store 'file:a b'` lists" in str(build_session_not_found("s", "file:a b"))


@pytest.mark.parametrize(
    ("about", "choices"), [("permission", "yes|no"), ("settlement", "retry|skip|TEXT"), ("slot", "VALUE")]
)
def test_how_a_question_is_shown_and_answered_is_named(about, choices):
    question = QuestionAsked("q", about, text="Which\nberth?")
    told = f"perdure questions s shows all of it; answer it with: perdure answer s q {choices}"
    assert format_answer_commands("s", question, None) == told
    assert describe_open_question("s", question, None) == f'a question is open: "Which\\nberth?"; {told}'
    told = (
        "perdure questions s --store 'file:a b' shows all of it; "
        f"answer it with: perdure answer s q --store 'file:a b' {choices}"
    )
    assert format_answer_commands("s", question, "file:a b") == told


def test_of_a_long_question_the_beginning_is_shown():
    shown = describe_open_question("s", QuestionAsked("q", "slot", text="x" * 500), None)
    assert 190 <= shown.count("x") <= 201


def test_arguments_about_a_session_are_quoted():
    assert format_session_arguments("a b", None) == "'a b'"
    assert format_session_arguments("s", "file:x", "--unpark") == "s --unpark --store file:x"


def test_a_session_that_is_there_is_worked_with(perdure):
    perdure("run", "-q", "--session", "s", "Calculate 6 * 7")

    async def work(session: Session) -> tuple[str, int]:
        return session.session_id, len(await session.messages())

    assert run_with_session(None, "s", work) == ("s", 4)
