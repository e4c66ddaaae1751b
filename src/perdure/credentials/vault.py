"""Where credentials are kept: in memory, in the environment, in the keyring of the system, or wherever you like.

Above: `redactor.py`, callers. Below: `secret.py`. A vault is anything with a method `resolve(name)`. The vault in a
file is in `file_vault.py`.
"""

import inspect
import os
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import Any, Protocol, cast

from perdure.core import check
from perdure.core.error import ConfigError
from perdure.core.thread import THREADS

from .secret import Secret, check_name, checked


class Vault(Protocol):
    """Knows the values of credentials by name.

    It may have a method `names()`, plain or async, which lists those that it knows: a model that asks for one that does
    not exist is told them.
    """

    def resolve(self, name: str) -> "str | Secret | Awaitable[str | Secret | None] | None":
        """The value of that name, or `None` when there is none. May be an `async def`."""
        ...


class MemoryVault:
    """Credentials that were given in code."""

    __slots__ = ("_secrets",)

    def __init__(self, values: Mapping[str, str | Secret] | None = None) -> None:
        if values is not None and not isinstance(values, Mapping):
            check.refuse("MemoryVault", "values", type(values), "give a dict of names and values")
        self._secrets: dict[str, Secret] = {}
        for name, value in (values or {}).items():
            self.set(name, value)

    def __repr__(self) -> str:
        return f"MemoryVault({', '.join(self._secrets)})"

    def set(self, name: str, value: str | Secret) -> None:
        """Add a credential, or give it another value."""
        check_name("MemoryVault.set", name)
        self._secrets[name] = Secret(checked(name, value))

    def remove(self, name: str) -> bool:
        """Forget a credential; says whether there was one."""
        return self._secrets.pop(name, None) is not None

    def resolve(self, name: str) -> str | None:
        """The value of that name."""
        secret = self._secrets.get(name)
        return None if secret is None else secret.reveal()

    def names(self) -> list[str]:
        """The names that it knows."""
        return list(self._secrets)


class EnvironmentVault:
    """Credentials in environment variables: `{{github_token}}` is `GITHUB_TOKEN`, after the prefix.

    Whoever may write placeholders can have every variable that the vault knows. So give it a prefix, or say which names
    it has: without either, that is the whole environment.
    """

    __slots__ = ("_only", "_prefix")

    def __init__(self, prefix: str = "", *, only: Collection[str] | None = None) -> None:
        check.text("EnvironmentVault", "prefix", prefix)
        if only is not None and (isinstance(only, str) or not all(isinstance(each, str) for each in only)):
            check.refuse("EnvironmentVault", "only", only, "give a list of names")
        self._prefix = prefix
        self._only = None if only is None else tuple(only)

    def __repr__(self) -> str:
        return f"EnvironmentVault({self._prefix!r})"

    def resolve(self, name: str) -> str | None:
        """The value of the variable of that name: as it is, or in capitals, with `_` for `-` and `.`."""
        if self._only is not None and name not in self._only:
            return None
        loud = name.upper().replace("-", "_").replace(".", "_")
        return os.environ.get(self._prefix + name) or os.environ.get(self._prefix + loud) or None

    def names(self) -> list[str]:
        """The names that it knows; none, when that would be everything in the environment."""
        if self._only is not None:
            return [name for name in self._only if self.resolve(name) is not None]
        if not self._prefix:
            return []
        size = len(self._prefix)
        return sorted([each[size:].lower() for each in os.environ if each.startswith(self._prefix) and each[size:]])


class KeyringVault:
    """Credentials in the keyring of the operating system, under the name of a service."""

    __slots__ = ("_service",)

    def __init__(self, service: str) -> None:
        check.text("KeyringVault", "service", service, filled=True)
        self._service = service

    def __repr__(self) -> str:
        return f"KeyringVault({self._service!r})"

    async def resolve(self, name: str) -> str | None:
        """The value of that name. Asked for on a thread: the system may have to ask somebody to unlock it."""
        return cast("str | None", await THREADS.run(_keyring().get_password, (self._service, name), {}))

    def set(self, name: str, value: str | Secret) -> None:
        """Add a credential, or give it another value."""
        check_name("KeyringVault.set", name)
        _keyring().set_password(self._service, name, checked(name, value))

    def remove(self, name: str) -> bool:
        """Forget a credential; says whether there was one."""
        keyring = _keyring()
        if keyring.get_password(self._service, name) is None:
            return False
        keyring.delete_password(self._service, name)
        return True


def _keyring() -> Any:
    import importlib

    try:
        return importlib.import_module("keyring")
    except ImportError as error:
        message = "KeyringVault needs the package 'keyring', which is not installed: pip install 'perdure[keyring]'"
        raise ConfigError(message) from error


def first_of(*vaults: Vault) -> "FirstOf":
    """A vault that asks one after the other, and takes the first value there is."""
    if not vaults:
        raise ConfigError("first_of() needs at least one vault")
    for vault in vaults:
        check_vault("first_of", "vaults", vault)
    return FirstOf(vaults)


class FirstOf:
    """Several vaults, as `first_of` puts them together."""

    __slots__ = ("_vaults",)

    def __init__(self, vaults: tuple[Vault, ...]) -> None:
        self._vaults = vaults

    @property
    def vaults(self) -> tuple[Vault, ...]:
        """Those that are asked, in order."""
        return self._vaults

    def __repr__(self) -> str:
        return f"first_of({', '.join(map(repr, self._vaults))})"

    async def resolve(self, name: str) -> str | Secret | None:
        """The value that the first of them has."""
        for vault in self._vaults:
            found = vault.resolve(name)
            value = await found if inspect.isawaitable(found) else found
            if value is not None:
                return value
        return None

    async def names(self) -> list[str]:
        """The names that any of them knows."""
        return list(dict.fromkeys([name for vault in self._vaults for name in await known_names(vault)]))


async def known_names(vault: Vault) -> list[str]:
    """The names that a vault says it knows; none when it does not say."""
    listed = getattr(vault, "names", None)
    if listed is None:
        return []
    found: Iterable[str] | Awaitable[Iterable[str]] = listed()
    return list(await found if inspect.isawaitable(found) else found)


def check_vault(call: str, name: str, vault: object) -> None:
    """Refuse what is no vault."""
    if isinstance(vault, type) or not callable(getattr(vault, "resolve", None)):
        check.refuse(call, name, type(vault), "give a vault, such as EnvironmentVault(prefix=…): it has resolve(name)")
