"""An agent out of a file: `perdure.toml`. Above: callers, the command line. Below: `configuring`, the agent.

`load_config` reads everything that the file names and checks it; `Config.agent` then puts the agent together. Nothing
is imported before that, and nothing that the file says can run, redirect or allow anything before it is trusted.
"""

# ruff: noqa: PTH111, PTH112, PTH118, PTH120 - a Path would cost milliseconds, and adds nothing here
import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from msgspec import Struct

from .agent import Agent
from .configuring.fault import BadConfig, Fault
from .configuring.imports import imported_extension, imported_tools
from .configuring.lines import Lines, Path
from .configuring.mcp_servers import ServerSource, how_to_trust, load_mcp_servers, read_servers, server_source
from .configuring.restriction import restricted, restricted_roles
from .configuring.schema import config_schema
from .configuring.source import MOST_BYTES, Source, read_toml
from .configuring.tables import CompactionTable, ConfigFile
from .configuring.trusted import TrustedFiles
from .configuring.validation import validated
from .context.compaction import Compaction
from .context.directives import Mentions
from .context.project import Project, config_folder
from .context.prompts import Prompts
from .context.role import Role
from .context.roles import chosen, load_roles
from .context.skills import Skills, Trust, load_skills, skills_in
from .context.strategies import keep_recent
from .context.text_file import lies_below, read_whole
from .core.error import ConfigError
from .core.model import Model
from .core.permission import Permissions, later
from .core.tool import Tool
from .credentials import EnvironmentVault, FileVault, KeyringVault, Vault, first_of
from .extension import Extension
from .extensions import history, large_results, notebook, short_results
from .mcp.server import McpServer
from .models import open_model

__all__ = [
    "BadConfig",
    "Config",
    "McpServer",
    "Trusted",
    "TrustedFiles",
    "config_schema",
    "load_config",
    "load_mcp_servers",
]

Trusted: TypeAlias = bool | Callable[[str], bool]
"""Whether the content of a file is trusted, or a function that says so of its SHA-256."""

PARTS: Final = (
    *("model", "name", "description", "instructions", "tools", "store", "permission", "limits", "settings"),
    *("compaction", "project", "skills", "roles", "role", "interactive", "mentions", "extensions", "vault"),
)
"""What a file can say, as `Agent` names it."""


class Config(Struct, frozen=True, kw_only=True, eq=False):
    """What a configuration file says, with all that it names read and checked. Made by `load_config`."""

    path: str
    """The file, as it was named."""
    digest: str
    """The SHA-256 of the file: what trust is bound to."""
    trusted: bool
    """Whether the file was trusted when it was read."""
    tables: ConfigFile
    """What it says, as it says it."""
    instructions: str = ""
    """What the agent is told, out of whichever key has it."""
    roles: tuple[Role, ...] = ()
    """Out of the folder of roles."""
    servers: tuple[ServerSource, ...] = ()
    """Servers out of the file itself and the files that it names, as they are described there."""
    problems: tuple[str, ...] = ()
    """What was left out, such as files of roles that cannot be used: a sentence for each."""
    lines: Lines = Lines({})
    """On which line each value stands."""

    @property
    def folder(self) -> str:
        """The folder of the file, from which its paths are seen."""
        return _folder_of(self.path)

    @property
    def workdir(self) -> str:
        """The folder that the agent works in."""
        return _seen_from(self.folder, self.tables.workdir)

    def agent(self, *, trust: Trust | None = None, **changes: Any) -> Agent[Any]:
        """The agent that the file describes.

        Args:
            trust: Which skills of the project somebody has agreed to; without it, none of them can be used.
            changes: What is to be otherwise, or what no file can say: anything that `Agent` takes. What is given here
                is not looked for in the file.

        Raises `ConfigError`; where it is about something in the file, with the line.
        """
        wanted = [name for name in PARTS if name not in changes]
        return Agent(**{**self.parts(wanted, trust=trust), **changes})

    def parts(self, names: Iterable[str] = PARTS, *, trust: Trust | None = None) -> dict[str, Any]:
        """What the file says, made: by the names under which `Agent` takes it, and no more of it than is asked for."""
        makers: dict[str, Callable[[], Any]] = {
            "model": self._model,
            "tools": self._tools,
            "permission": self._permission,
            "compaction": self._compaction,
            "project": lambda: Project(self.workdir) if self.tables.project else None,
            "skills": lambda: self._skills(trust),
            "roles": lambda: self.roles,
            "instructions": lambda: self.instructions,
            "store": self._store,
            "mentions": lambda: Mentions(self.workdir) if self.tables.mentions else None,
            "extensions": self._extensions,
            "vault": self._vault,
        }
        return {name: makers[name]() if name in makers else getattr(self.tables, name) for name in names}

    def mcp_servers(self, environment: Mapping[str, str] | None = None) -> list[McpServer]:
        """Servers of the Model Context Protocol, with the variables in their texts expanded. Nothing is started.

        `environment` has the variables; by default they are those of this process. Raises `BadConfig`, which names the
        line of what is missing or wrong.
        """
        return [server for each in self.servers for server in each.servers(environment)]

    def _model(self) -> Model:
        with self._at(("model",)):
            if not self.tables.model:
                raise ConfigError('there is no model: add model = "provider:model", or use config.agent(model=…)')
            return open_model(self.tables.model, base_url=self.tables.base_url)

    def _tools(self) -> list[Tool[..., Any]]:
        found: list[Tool[..., Any]] = []
        for place, name in enumerate(self.tables.tools):
            with self._at(("tools", place)):
                found += imported_tools(name)
        return found

    def _permission(self) -> Permissions | None:
        table = self.tables.permissions
        if table is None:
            return None
        handler = later if table.otherwise == "later" else None
        return Permissions(*table.rules, handler=handler, expires_seconds=table.expires_seconds)

    def _compaction(self) -> Compaction | None:
        table = self.tables.compaction
        if table is None:
            return None
        with self._at(("compaction", "model")):
            return compaction_of(table, open_model(table.model) if table.model else None)

    def _skills(self, trust: Trust | None) -> Skills | None:
        wanted = self.tables.skills
        if isinstance(wanted, bool):
            return load_skills(self.workdir, trust=trust) if wanted else None
        found = Skills()
        for place, folder in enumerate(wanted):
            with self._at(("skills", place)):
                found += skills_in(_seen_from(self.folder, folder))
        return found

    def _extensions(self) -> list[Extension]:
        table, made = self.tables.extensions, list[Extension]()
        if table.large_results is not False:
            with self._at(("extensions", "large_results")):
                made.append(large_results() if table.large_results is True else large_results(table.large_results))
        made += [short_results()] if table.short_results else []
        made += [history()] if table.history else []
        made += [notebook()] if table.notebook else []
        for place, name in enumerate(table.imports):
            with self._at(("extensions", "imports", place)):
                made.append(imported_extension(name))
        return made

    def _vault(self) -> Vault | None:
        table = self.tables.vault
        if table is None:
            return None
        with self._at(("vault",)):
            vaults: list[Vault] = [] if table.environment is None else [EnvironmentVault(table.environment)]
            vaults += [FileVault(_seen_from(self.folder, table.file))] if table.file else []
            vaults += [KeyringVault(table.keyring)] if table.keyring else []
            if not vaults:
                raise ConfigError("a vault needs a place: add environment, file or keyring")
            return first_of(*vaults)

    def _store(self) -> str:
        """The store, whose path is seen from the folder of the file too."""
        scheme, colon, path = self.tables.store.partition(":")
        if scheme in {"file", "sqlite"} and path and not path.startswith("//"):
            return f"{scheme}{colon}{_seen_from(self.folder, path)}"
        return self.tables.store or "memory:"

    @contextlib.contextmanager
    def _at(self, path: Path) -> Generator[None]:
        """What goes wrong here is about this value of the file."""
        try:
            yield
        except ConfigError as error:
            raise BadConfig(self.path, [Fault(self.lines.of(path), str(error))]) from error


def compaction_of(table: CompactionTable, model: Model | None = None) -> Compaction:
    """What a table describes. Raises `ConfigError` for numbers that cannot work."""
    fields = {name: getattr(table, name) for name in table.__struct_fields__ if name not in {"model", "strategy"}}
    return Compaction(**fields, model=model, strategy=keep_recent if table.strategy == "keep_recent" else None)


# -- from a file to a Config -------------------------------------------------------------------------------------------


def load_config(path: str | os.PathLike[str] = "perdure.toml", *, trusted: Trusted = False) -> Config:
    """Read a configuration file and what it names, and check all of it. Nothing is imported, started or opened.

    Args:
        path: The file.
        trusted: Whether its content is trusted, or a function that says so of its SHA-256, such as
            `TrustedFiles(path)`. Say `True` for a file that is part of your program. Without trust, keys that run,
            redirect or allow anything are refused. The user's own files, in `~/.config/perdure`, are always trusted.

    Raises `BadConfig`, which has all that is wrong, each with its line.
    """
    source = read_toml(path)
    tables = validated(source)
    folder = _folder_of(source.path)
    believed = _vouched(source.path, trusted, source.digest)
    if not believed:
        _refuse_restricted(source, [*restricted(tables, folder)])
    problems: list[str] = []
    roles = load_roles(_seen_from(folder, tables.roles), problems=problems) if tables.roles else []
    if not believed and restricted_roles(roles):
        _refuse_restricted(source, [(("roles",), "sends conversations to an address of a role's own")])
    _check_names(source, tables, roles, folder)
    return Config(
        path=source.path,
        digest=source.digest,
        trusted=believed,
        tables=tables,
        instructions=_instructions(source, tables, folder),
        roles=tuple(roles),
        servers=tuple(_servers(source, tables, folder, trusted)),
        problems=tuple(problems),
        lines=source.lines,
    )


def _folder_of(path: str) -> str:
    return os.path.dirname(os.path.realpath(os.path.expanduser(path)))


def _seen_from(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _vouched(path: str, trusted: Trusted, digest: str) -> bool:
    """Whether somebody vouches for a file; what lies among the user's own settings is the user's own."""
    if trusted(digest) if callable(trusted) else trusted:
        return True
    return lies_below(_folder_of(path), os.path.realpath(config_folder()))


def _refuse_restricted(source: Source, found: list[tuple[Path, str]]) -> None:
    if not found:
        return
    advice = f"{how_to_trust(source.path)}; for a file of your own, use load_config(…, trusted=True)"
    raise BadConfig(
        source.path,
        [
            source.fault(path, f"'{'.'.join(map(str, path))}' {what}, and the file is not trusted: {advice}")
            for path, what in found
        ],
    )


def _check_names(source: Source, tables: ConfigFile, roles: list[Role], folder: str) -> None:
    """Refuse what names something that is not there."""
    if not os.path.isdir(_seen_from(folder, tables.workdir)):
        source.refuse(("workdir",), f"there is no folder {tables.workdir!r}: make it, or name another")
    if tables.role:
        try:
            chosen(roles, tables.role)
        except ConfigError as error:
            source.refuse(("role",), str(error))
    if tables.compaction is not None:
        try:
            compaction_of(tables.compaction)
        except ConfigError as error:
            source.refuse(("compaction",), str(error))


def _instructions(source: Source, tables: ConfigFile, folder: str) -> str:
    table = tables.prompts
    try:
        if table is not None:
            return Prompts(_seen_from(folder, table.directory), table.default).get(table.version)
        if tables.instructions_file:
            return read_whole(_seen_from(folder, tables.instructions_file), MOST_BYTES)
    except ConfigError as error:
        source.refuse(("prompts",) if table is not None else ("instructions_file",), str(error))
    return tables.instructions


def _servers(source: Source, tables: ConfigFile, folder: str, trusted: Trusted) -> Iterator[ServerSource]:
    """Those of the file itself, and those of the files that it names, which need trust of their own."""
    seen = set(tables.mcp.servers)
    yield server_source(source, ("mcp", "servers"), tables.mcp.servers)
    for place, name in enumerate(tables.mcp.files):
        path = _seen_from(folder, name)
        found = read_servers(path, trusted=partial(_vouched, path, trusted))
        if twice := sorted(seen & set(found.tables)):
            source.refuse(("mcp", "files", place), f"there is a server {twice[0]!r} already: rename one of the two")
        seen |= set(found.tables)
        yield found
