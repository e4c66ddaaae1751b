"""The file of the logins: what is stored, exchanged and removed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from perdure import ConfigError
from perdure._mcp.login import file
from perdure._mcp.login.file import get_default_logins_path
from perdure.mcp import LoginFile, StoredLogin

LOGIN = StoredLogin(
    url="https://host.example/mcp",
    resource="https://host.example/mcp",
    issuer="https://host.example",
    token_endpoint="https://host.example/token",
    client_id="c",
    access_token="one",
)
OTHER = replace(LOGIN, access_token="two")


@pytest.fixture
def logins(tmp_path: Path) -> LoginFile:
    return LoginFile(tmp_path / "home" / "logins.json")


def test_logins_are_stored_by_server_and_removed_once(logins: LoginFile) -> None:
    assert logins.load() == {}
    assert logins.get("a") is None
    assert logins.remove("a") is False
    logins.store("a", LOGIN)
    logins.store("b", OTHER)
    assert logins.load() == {"a": LOGIN, "b": OTHER}
    logins.store("a", OTHER)
    assert logins.get("a") == OTHER
    assert logins.remove("a") is True
    assert logins.remove("a") is False
    assert LoginFile(logins.path).load() == {"b": OTHER}


def test_a_login_is_exchanged_only_for_the_one_that_is_there(logins: LoginFile) -> None:
    assert logins.exchange("a", LOGIN, OTHER) is False
    assert logins.load() == {}
    logins.store("a", LOGIN)
    logins.store("b", LOGIN)
    assert logins.exchange("a", OTHER, LOGIN) is False
    assert logins.exchange("a", LOGIN, OTHER) is True
    assert logins.load() == {"a": OTHER, "b": LOGIN}
    assert logins.exchange("a", OTHER, None) is True
    assert logins.load() == {"b": LOGIN}


@pytest.mark.parametrize("content", ["\n", "[]", '{"a": {"access_token": "one"}}', '{"a": '])
def test_a_damaged_file_is_refused_without_its_content(logins: LoginFile, content: str) -> None:
    logins.store("a", LOGIN)
    Path(logins.path).write_text(content)
    with pytest.raises(ConfigError) as caught:
        logins.load()
    problem = "cannot be parsed, so it is not used: delete it, and log in again"
    assert str(caught.value) == f"the login file of MCP servers {logins.path!r} {problem}"
    assert caught.value.__suppress_context__


async def test_a_refresh_that_takes_too_long_is_not_waited_for(
    logins: LoginFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "REFRESH_SECONDS", 0.01)
    entered = []
    async with logins.lock_refresh(), LoginFile(logins.path).lock_refresh():
        entered.append("while it hangs")
    async with logins.lock_refresh():
        entered.append("later")
    assert entered == ["while it hangs", "later"]


@pytest.mark.parametrize(("home", "path"), [("/srv/perdure", "/srv/perdure"), ("", "~/.perdure"), (None, "~/.perdure")])
def test_logins_are_in_the_folder_of_the_user_unless_another_is_named(
    home: str | None, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERDURE_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("PERDURE_HOME", home)
    assert get_default_logins_path() == str(Path(path).expanduser() / "mcp_logins.json")
