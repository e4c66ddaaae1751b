"""Vaults: in memory, in the environment, in a keyring, one after the other."""

import sys
import types

import pytest

from perdure import ConfigError
from perdure._credentials.vault import list_local_secret_names, list_secret_names
from perdure.permissions import EnvironmentVault, FileVault, KeyringVault, MemoryVault, Secret, first_of


def test_a_vault_in_memory_knows_what_it_was_given():
    vault = MemoryVault({"token": "abcd-1234", "other": Secret("efgh-5678")})
    assert (vault.resolve("token"), vault.resolve("other"), vault.resolve("none")) == ("abcd-1234", "efgh-5678", None)
    assert vault.names() == ["token", "other"]
    assert "abcd" not in repr(vault)


def test_a_vault_in_memory_can_be_changed():
    vault = MemoryVault()
    vault.set("token", "first-value")
    vault.set("token", "second-value")
    assert vault.resolve("token") == "second-value"
    assert (vault.remove("token"), vault.remove("token")) == (True, False)


@pytest.mark.parametrize(
    ("values", "problem"),
    [({"a b": "abcd-1234"}, "letters, digits"), ({"token": "abc"}, "fewer than 4"), (["token"], "a dict of names")],
)
def test_what_cannot_be_a_credential_is_refused_where_it_is_given(values, problem):
    with pytest.raises(ConfigError, match=problem):
        MemoryVault(values)


def test_a_vault_in_the_environment_takes_small_letters_for_capitals(monkeypatch):
    monkeypatch.setenv("SHIP_GITHUB_TOKEN", "abcd-1234")
    monkeypatch.setenv("SHIP_exact", "efgh-5678")
    monkeypatch.setenv("SHIP_EMPTY", "")
    vault = EnvironmentVault("SHIP_")
    assert [vault.resolve(name) for name in ("github_token", "github-token", "github.token")] == ["abcd-1234"] * 3
    assert vault.resolve("exact") == "efgh-5678"
    assert vault.resolve("empty") is None
    assert vault.names() == ["empty", "exact", "github_token"]


def test_a_vault_in_the_environment_knows_no_more_than_it_is_told(monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "abcd-1234")
    monkeypatch.setenv("OTHER_TOKEN", "efgh-5678")
    vault = EnvironmentVault(only=["github_token", "missing"])
    assert vault.resolve("github_token") == "abcd-1234"
    assert vault.resolve("other_token") is None
    assert vault.names() == ["github_token"]
    assert EnvironmentVault().names() == []  # and does not list the whole environment to a model
    with pytest.raises(ConfigError, match="a list of names"):
        EnvironmentVault(only="github_token")


@pytest.fixture
def keyring(monkeypatch):
    kept: dict[tuple[str, str], str] = {}
    module = types.ModuleType("keyring")
    module.get_password = lambda service, name: kept.get((service, name))  # type: ignore[attr-defined]
    module.set_password = lambda service, name, value: kept.update({(service, name): value})  # type: ignore[attr-defined]
    module.delete_password = lambda service, name: kept.pop((service, name))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    return kept


async def test_a_vault_in_the_keyring_asks_the_system(keyring):
    vault = KeyringVault("ship")
    vault.set("token", "abcd-1234")
    assert keyring == {("ship", "token"): "abcd-1234"}
    assert (await vault.resolve("token"), await vault.resolve("none")) == ("abcd-1234", None)
    assert (vault.remove("token"), vault.remove("token")) == (True, False)


async def test_a_missing_keyring_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigError, match=r"perdure\[keyring\]"):
        await KeyringVault("ship").resolve("token")


async def test_the_first_vault_that_knows_a_name_is_taken(monkeypatch):
    class Remote:
        async def resolve(self, name):
            return {"remote": "from-afar"}.get(name)

    vault = first_of(
        MemoryVault({"token": "first-one"}), Remote(), MemoryVault({"token": "second", "more": "third-one"})
    )
    assert [await vault.resolve(name) for name in ("token", "remote", "more", "none")] == [
        *["first-one", "from-afar", "third-one", None]
    ]
    assert await list_secret_names(vault) == ["token", "more"]
    assert "first-one" not in repr(vault)


def test_what_is_no_vault_is_refused():
    with pytest.raises(ConfigError, match="at least one"):
        first_of()
    with pytest.raises(ConfigError, match="give a vault"):
        first_of({"token": "abcd-1234"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give a vault"):
        first_of(MemoryVault)  # type: ignore[arg-type]


class Far:
    def resolve(self, name):
        raise AssertionError(name)

    def names(self):
        raise AssertionError("it takes long to ask")


def test_what_is_in_memory_and_in_files_is_listed(tmp_path):
    file = FileVault(tmp_path / "keys.json")
    file.set("one", "a-long-value")
    memory = MemoryVault({"two": "a-long-value"})
    assert (list_local_secret_names(file), list_local_secret_names(memory)) == (["one"], ["two"])
    assert list_local_secret_names(first_of(Far(), memory, file, memory)) == ["two", "one"]


def test_what_is_far_away_or_in_the_environment_is_not(monkeypatch):
    monkeypatch.setenv("SHIP_MODE", "under way")
    assert list_local_secret_names(Far()) == list_local_secret_names(EnvironmentVault("SHIP_")) == []


def test_a_vault_in_the_keyring_takes_only_names_and_values_that_can_be_used(
    keyring: dict[tuple[str, str], str],
) -> None:
    with pytest.raises(ConfigError, match="service"):
        KeyringVault("")
    vault = KeyringVault("ship")
    with pytest.raises(ConfigError, match="letters, digits"):
        vault.set("a b", "abcd-1234")
    with pytest.raises(ConfigError, match="fewer than 4"):
        vault.set("token", "abc")
    assert keyring == {}
    vault.set("token", Secret("abcd-1234"))
    assert keyring == {("ship", "token"): "abcd-1234"}


def test_a_vault_in_the_environment_takes_its_names_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "abcd-1234")
    monkeypatch.setenv("TWO", "efgh-5678")
    names = ["one"]
    vault = EnvironmentVault(only=names)
    names.append("two")
    assert (vault.names(), vault.resolve("two")) == (["one"], None)
    with pytest.raises(ConfigError, match="a list of names"):
        EnvironmentVault(only=[3])  # type: ignore[list-item]


async def test_a_vault_may_list_its_names_later_or_not_at_all() -> None:
    class Listing(MemoryVault):
        async def names(self) -> list[str]:  # type: ignore[override]
            return super().names()

    class Silent:
        def resolve(self, name: str) -> None:
            return None

    assert await list_secret_names(Listing({"a": "abcd-1234"})) == ["a"]
    assert await list_secret_names(Silent()) == []
