"""Vaults, which return secrets by name: from memory, environment variables or the keyring; combined, or bound to tools.

A vault is any object with a method `resolve(name)`. The vault in a file is in `file_vault.py`.
"""

import inspect
import os
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import Any, Protocol, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from perdure._core.permission.targets.url import UrlTarget
from perdure._core.tools.worker.threads import THREAD_POOL
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, ToolError

from .file_vault import FileVault
from .secret import Secret, check_secret_name, check_secret_value


class Vault(Protocol):
    """Protocol of a source of secrets: its method `resolve` returns a secret by its name.

    It may have a method `names()`, plain or async, that lists its names: they are shown to a model that uses an unknown
    name.
    """

    def resolve(self, name: str) -> "str | Secret | Awaitable[str | Secret | None] | None":
        """Return the secret with that name, or `None` if there is none. May be an `async def`."""
        ...


class MemoryVault:
    """A vault with secrets that are given in code."""

    __slots__ = ("_secrets",)

    def __init__(self, values: Mapping[str, str | Secret] | None = None) -> None:
        if values is not None and not isinstance(values, Mapping):
            checks.raise_config_error("MemoryVault", "values", type(values), "give a dict of names and values")
        self._secrets: dict[str, Secret] = {}
        for name, value in (values or {}).items():
            self.set(name, value)

    def __repr__(self) -> str:
        return f"MemoryVault({', '.join(self._secrets)})"

    def set(self, name: str, value: str | Secret) -> None:
        """Add a credential, or change its value."""
        check_secret_name("MemoryVault.set", name)
        self._secrets[name] = Secret(check_secret_value(name, value))

    def remove(self, name: str) -> bool:
        """Remove a credential; return True if there was one."""
        return self._secrets.pop(name, None) is not None

    def resolve(self, name: str) -> str | None:
        """Return the secret with that name; `None` if there is none."""
        secret = self._secrets.get(name)
        return None if secret is None else secret.reveal()

    def names(self) -> list[str]:
        """Return the names of all secrets in the vault."""
        return list(self._secrets)


class EnvironmentVault:
    """Vault that reads secrets from environment variables: `{{github_token}}` reads `<prefix>GITHUB_TOKEN`.

    A model that can write placeholders can use every variable of the vault. So give it a prefix, or a list of names:
    without either, that is the whole environment.
    """

    __slots__ = ("_only", "_prefix")

    def __init__(self, prefix: str = "", *, only: Collection[str] | None = None) -> None:
        checks.require_text("EnvironmentVault", "prefix", prefix)
        if only is not None and (isinstance(only, str) or not all(isinstance(each, str) for each in only)):
            checks.raise_config_error("EnvironmentVault", "only", only, "give a list of names")
        self._prefix = prefix
        self._only = None if only is None else tuple(only)

    def __repr__(self) -> str:
        return f"EnvironmentVault({self._prefix!r})"

    def resolve(self, name: str) -> str | None:
        """Return the environment variable of that name: as it is, or in upper case with `_` for `-` and `.`."""
        if self._only is not None and name not in self._only:
            return None
        loud = name.upper().replace("-", "_").replace(".", "_")
        return os.environ.get(self._prefix + name) or os.environ.get(self._prefix + loud) or None

    def names(self) -> list[str]:
        """Return the names of the variables in the vault; none if that would be the whole environment."""
        if self._only is not None:
            return [name for name in self._only if self.resolve(name) is not None]
        if not self._prefix:
            return []
        size = len(self._prefix)
        return sorted([each[size:].lower() for each in os.environ if each.startswith(self._prefix) and each[size:]])


class KeyringVault:
    """Vault that reads secrets from the keyring of the operating system, under the name of a service."""

    __slots__ = ("_service",)

    def __init__(self, service: str) -> None:
        checks.require_text("KeyringVault", "service", service, non_empty=True)
        self._service = service

    def __repr__(self) -> str:
        return f"KeyringVault({self._service!r})"

    async def resolve(self, name: str) -> str | None:
        """Return the secret with that name. Runs in a thread: the system may have to ask the user to unlock the
        keyring.
        """
        return cast("str | None", await THREAD_POOL.run(_import_keyring().get_password, (self._service, name), {}))

    def set(self, name: str, value: str | Secret) -> None:
        """Add a credential, or change its value."""
        check_secret_name("KeyringVault.set", name)
        _import_keyring().set_password(self._service, name, check_secret_value(name, value))

    def remove(self, name: str) -> bool:
        """Remove a credential; return True if there was one."""
        keyring = _import_keyring()
        if keyring.get_password(self._service, name) is None:
            return False
        keyring.delete_password(self._service, name)
        return True


def _import_keyring() -> Any:
    import importlib

    try:
        return importlib.import_module("keyring")
    except ImportError as error:
        message = "KeyringVault needs the package 'keyring', which is not installed: pip install 'perdure[keyring]'"
        raise ConfigError(message) from error


def first_of(*vaults: Vault) -> "CombinedVault":
    """Combine vaults into one, which returns a secret from the first vault that has it."""
    if not vaults:
        raise ConfigError("first_of() needs at least one vault")
    for vault in vaults:
        check_vault("first_of", "vaults", vault)
    return CombinedVault(vaults)


class CombinedVault:
    """Several vaults, asked in order; created by `first_of`."""

    __slots__ = ("_vaults",)

    def __init__(self, vaults: tuple[Vault, ...]) -> None:
        self._vaults = vaults

    @property
    def vaults(self) -> tuple[Vault, ...]:
        """The combined vaults, in the order in which they are asked."""
        return self._vaults

    def __repr__(self) -> str:
        return f"first_of({', '.join(map(repr, self._vaults))})"

    async def resolve(self, name: str) -> str | Secret | None:
        """Return the secret from the first vault that has one with that name."""
        for vault in self._vaults:
            found = vault.resolve(name)
            value = await found if inspect.isawaitable(found) else found
            if value is not None:
                return value
        return None

    async def names(self) -> list[str]:
        """Return the names of the secrets in all of the vaults."""
        return list(dict.fromkeys([name for vault in self._vaults for name in await list_secret_names(vault)]))


class SecretBinding(Struct, frozen=True, kw_only=True):
    """Binding of a secret to the tools that may get it, and to the origins of the URLs that it may be sent to."""

    tools: Collection[str]
    """The names of the tools that may get it."""
    origins: Collection[str] = ()
    """The origins that it may be sent to, such as `https://api.example.org`; empty if the tools send it nowhere.

    With origins, a tool gets the secret only if its target is a URL of one of them.
    """

    def __post_init__(self) -> None:
        if isinstance(self.tools, str) or not self.tools or not all(isinstance(each, str) for each in self.tools):
            checks.raise_config_error("SecretBinding", "tools", self.tools, "give a list of names of tools")
        if isinstance(self.origins, str):
            checks.raise_config_error("SecretBinding", "origins", self.origins, "give a list of origins")
        force_setattr(self, "tools", tuple(self.tools))
        force_setattr(self, "origins", tuple([_parse_origin(each) for each in self.origins]))


def _parse_origin(origin: object) -> str:
    """Return an origin in normal form. Raises `ConfigError` if it is something else, or has a path."""
    try:
        target = UrlTarget.of(cast("str", origin))
    except ValueError:
        target = None
    if target is None or target.path != "/" or target.query:
        advice = "give origins such as 'https://api.example.org'"
        checks.raise_config_error("SecretBinding", "origins", origin, advice)
    return target.origin


class BoundVault:
    """Vault that gives a secret only to the tools and URL origins that it is bound to; unbound secrets cannot be used.

    A model that is told to send a secret elsewhere gets an error instead.
    """

    __slots__ = ("_bindings", "_vault")

    def __init__(self, vault: Vault, bindings: Mapping[str, SecretBinding]) -> None:
        """Bind secrets of a vault, by their names."""
        check_vault("BoundVault", "vault", vault)
        if not isinstance(bindings, Mapping) or not all(isinstance(each, SecretBinding) for each in bindings.values()):
            checks.raise_config_error("BoundVault", "bindings", bindings, "give a SecretBinding(…) for each name")
        for name in bindings:
            check_secret_name("BoundVault", name)
        self._vault = vault
        self._bindings = dict(bindings)

    @property
    def vault(self) -> Vault:
        """The vault that has the secrets."""
        return self._vault

    @property
    def bindings(self) -> Mapping[str, SecretBinding]:
        """The bindings by the names of the secrets."""
        return self._bindings

    def __repr__(self) -> str:
        return f"BoundVault({self._vault!r}, {', '.join(self._bindings)})"

    def resolve(self, name: str) -> "str | Secret | Awaitable[str | Secret | None] | None":
        """Return the secret with that name; `None` if it is not bound, or there is none."""
        return self._vault.resolve(name) if name in self._bindings else None

    def names(self) -> list[str]:
        """Return the names of the secrets that are bound."""
        return list(self._bindings)


def check_secret_use(vault: Vault, name: str, tool: str, target: object) -> None:
    """Raise `ToolError` unless the binding of a secret allows this tool, and the origin of the URL it is sent to."""
    if isinstance(vault, CombinedVault):
        for each in vault.vaults:
            check_secret_use(each, name, tool, target)
    binding = vault.bindings.get(name) if isinstance(vault, BoundVault) else None
    if binding is None:
        return
    if tool not in binding.tools:
        raise ToolError(f"the credential {name!r} is not for the tool {tool!r}, but for {', '.join(binding.tools)}")
    origin = target.origin if isinstance(target, UrlTarget) else ""
    if binding.origins and origin not in binding.origins:
        where = f"to {origin}" if origin else "where this call sends it"
        raise ToolError(f"the credential {name!r} may not be sent {where}, but to {', '.join(binding.origins)}")


async def list_secret_names(vault: Vault) -> list[str]:
    """Return the names of all secrets in a vault; an empty list if the vault has no method to list them."""
    listed = getattr(vault, "names", None)
    if listed is None:
        return []
    found: Iterable[str] | Awaitable[Iterable[str]] = listed()
    return list(await found if inspect.isawaitable(found) else found)


def list_local_secret_names(vault: Vault) -> list[str]:
    """Return the names of the secrets that a vault has in memory or in a file; vaults that may be slow are not asked.

    Other vaults are left out, as they may take long; so is the environment, where a prefix covers more than secrets.
    """
    if isinstance(vault, CombinedVault):
        return list(dict.fromkeys([name for each in vault.vaults for name in list_local_secret_names(each)]))
    if isinstance(vault, BoundVault):
        return [name for name in list_local_secret_names(vault.vault) if name in vault.bindings]
    return vault.names() if isinstance(vault, (MemoryVault, FileVault)) else []


def check_vault(call: str, name: str, vault: object) -> None:
    """Raise `ConfigError` unless an argument is a vault; `call` and `name` name the argument in the message."""
    if isinstance(vault, type) or not callable(getattr(vault, "resolve", None)):
        checks.raise_config_error(
            call, name, type(vault), "give a vault, such as EnvironmentVault(prefix=…): it has resolve(name)"
        )
