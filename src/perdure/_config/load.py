"""Build an agent from a configuration file, `perdure.toml`.

`load_config` reads and checks the file and everything it names; `Config.agent` then builds the agent. Nothing is
imported before that, and until the file is trusted, nothing in it can run, redirect or allow anything.
"""

# ruff: noqa: PTH111, PTH112, PTH118, PTH120 - a Path would cost milliseconds, and adds nothing here
import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perdure._context.directives.mentions import MentionSettings
from perdure._context.history.compaction import Compaction, CompactionOptions
from perdure._context.history.strategies import keep_recent
from perdure._context.project import Project, get_config_folder
from perdure._context.prompt_files import Prompts
from perdure._context.role import Role
from perdure._context.role_files import find_role, load_roles
from perdure._context.skills.loading import load_skills, load_skills_from
from perdure._context.skills.skill import Skills
from perdure._context.skills.trust import Trust
from perdure._context.text_files import decode_strictly
from perdure._core.model.protocol import Model
from perdure._core.permission.gate import Permissions, later
from perdure._core.run.requests import PROJECT_SOURCE, label_requests
from perdure._core.run.stop import Limits
from perdure._core.tools.tool import Tool
from perdure._core.values.error import ConfigError
from perdure._core.values.message import merge_labels
from perdure._core.values.provenance import UNTRUSTED_LABEL
from perdure._credentials.file_vault import FileVault
from perdure._credentials.vault import EnvironmentVault, KeyringVault, Vault, first_of
from perdure._engines.registry import open_engine
from perdure._io.files.head import is_path_below
from perdure._mcp.settings import McpServer
from perdure._models.registry import open_model
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.extension import Extension
from perdure._tools.extensions import code_mode, history, large_results, memory, notebook, short_results, tool_search

from .error import BadConfig, ConfigFault
from .file import MAX_BYTES, UNREADABLE, ParsedConfigFile, ReferencedFiles, compute_trust_digest, hash_skills, read_toml
from .imports import PythonFileContent, get_file_name, import_extension, import_tools
from .lines import LineNumbers, ValuePath
from .mcp_servers import (
    UnexpandedServers,
    build_unexpanded_servers,
    format_trust_advice,
    load_mcp_servers,
    read_unexpanded_servers,
)
from .needs_trust import (
    list_raised_limits,
    list_restricted_settings,
    list_roles_that_need_trust,
    tighten_limits,
)
from .schedules import build_schedule
from .schema import config_schema
from .tables import CompactionTable, ConfigFile
from .trusted import TrustedFiles, is_digest_trusted
from .validation import convert_config

if TYPE_CHECKING:
    from perdure._core.run.run import Run
    from perdure._work.schedules.schedule import Schedule

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

T = TypeVar("T")
Trusted: TypeAlias = bool | Callable[[str], bool]
"""True if a file is trusted, or a function that decides by the SHA-256 of the file, its place and what it names."""

AGENT_OPTIONS: Final = (
    *("model", "name", "description", "instructions", "tools", "store", "permission", "limits", "settings"),
    *("compaction", "project", "skills", "roles", "role", "interactive", "mentions", "extensions", "vault"),
    "engine",  # last: importing tools and extensions may register it
)
"""Options of `Agent` that a file can set."""


class Config(Struct, frozen=True, kw_only=True, eq=False):
    """The contents of a configuration file such as `perdure.toml`, read and checked. Made by `load_config`."""

    path: str
    """The file, as the caller named it."""
    digest: str
    """SHA-256 of the file, of all files that it names, and of its place: trust is bound to it."""
    files: Mapping[str, str] = {}
    """SHA-256 of the file and of each file that it names, by path."""
    trusted: bool
    """True if the file was trusted when it was read."""
    tables: ConfigFile
    """The settings as written in the file."""
    instructions: str = ""
    """System instructions, from whichever key sets them."""
    roles: tuple[Role, ...] = ()
    """Roles from the folder of roles."""
    servers: tuple[UnexpandedServers, ...] = ()
    """MCP servers of the file and of the files it names, not expanded."""
    problems: tuple[str, ...] = ()
    """Messages about what was left out, such as invalid role files."""
    given: frozenset[str] = frozenset()
    """Names of the settings and tables that are in the file."""
    lines: LineNumbers = LineNumbers()
    """Line numbers of the values."""
    resolved_workdir: str = ""

    @property
    def folder(self) -> str:
        """Folder of the configuration file. Relative paths in the file start here."""
        return _config_folder(self.path)

    @property
    def workdir(self) -> str:
        """Working folder of the agent, with links resolved when the file was read."""
        return self.resolved_workdir

    @property
    def limits(self) -> Limits:
        """Limits of a run. A file that is not trusted can lower the default limits, and not raise them."""
        return self.tables.limits if self.trusted else tighten_limits(self.tables.limits)

    def agent(self, *, trust: Trust | None = None, **changes: Any) -> Agent[Any]:
        """Build the agent that the file describes.

        Args:
            trust: Trust in skills of the project; without it, none of them is used.
            changes: Options of `Agent` that override the file, or that no file can set. Such keys are not read from
                the file.

        Raises `ConfigError`; with the line, if it is about the file.
        """
        wanted = [name for name in AGENT_OPTIONS if name not in changes]
        options = {**self.build_options(wanted, trust=trust), **changes}
        if "instructions" not in changes and (origin := self.build_origin_extension(trusted=self.trusted)) is not None:
            options["extensions"] = [*options["extensions"], origin]
        return Agent(**options)

    def build_options(
        self, names: Iterable[str] = AGENT_OPTIONS, *, trust: Trust | None = None, trusted: bool | None = None
    ) -> dict[str, Any]:
        """Build only the named options of `Agent` from the configuration file.

        `trusted` is whether the user trusts who wrote the working folder; by default, whether the file is trusted.
        """
        is_trusted = self.trusted if trusted is None else trusted
        makers: dict[str, Callable[[], Any]] = {
            "model": self._model,
            "tools": self._tools,
            "permission": self._permission,
            "compaction": self._compaction,
            "project": lambda: Project(self.workdir, trusted=is_trusted) if self.tables.project else None,
            "skills": lambda: self._skills(trust),
            "roles": lambda: self.roles if is_trusted else [_label_role(each) for each in self.roles],
            "limits": lambda: self.limits,
            "instructions": lambda: self.instructions,
            "store": self._store,
            "mentions": lambda: MentionSettings(self.workdir, trusted=is_trusted) if self.tables.mentions else None,
            "extensions": self._extensions,
            "vault": self._vault,
            "engine": self._engine,
        }
        return {name: makers[name]() if name in makers else getattr(self.tables, name) for name in names}

    def mcp_servers(self, environment: Mapping[str, str] | None = None) -> list[McpServer]:
        """Return the file's MCP servers, with environment variables in their settings expanded. No server is started.

        `environment` has the variables; by default those of this process. Raises `BadConfig` with the line of what is
        missing or wrong.
        """
        return [server for each in self.servers for server in each.expand_servers(environment)]

    def _model(self) -> Model:
        with self._errors_at(("model",)):
            if not self.tables.model:
                raise ConfigError('there is no model: add model = "provider:model", or use config.agent(model=…)')
            return open_model(self.tables.model, base_url=self.tables.base_url)

    def _engine(self) -> str:
        """Return the name of the engine, which the log keeps; an unknown name is an error of its line."""
        name = self.tables.engine or "react"
        with self._errors_at(("engine",)):
            open_engine(name)
        return name

    def _tools(self) -> list[Tool[..., Any]]:
        found: list[Tool[..., Any]] = []
        for place, name in enumerate(self.tables.tools):
            with self._errors_at(("tools", place)):
                found += import_tools(name, self._read_source)
        return found

    def _read_source(self, named: str) -> PythonFileContent:
        """Read a file of Python that the configuration names, if it is still the one that was trusted with it."""
        files = ReferencedFiles(self.folder, is_trusted=True)
        path, data = files.resolve(named), files.read_file(named, MAX_BYTES)
        if files.digests[path] != self.files.get(path, UNREADABLE):
            raise ConfigError(f"{path!r} has changed since the file was read: read it again")
        return PythonFileContent(path, data)

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
        with self._errors_at(("compaction", "model")):
            return build_compaction(table, open_model(table.model) if table.model else None)

    def _skills(self, trust: Trust | None) -> Skills | None:
        wanted = self.tables.skills
        if isinstance(wanted, bool):
            return load_skills(self.workdir, trust=trust) if wanted else None
        found = Skills()
        for place, folder in enumerate(wanted):
            with self._errors_at(("skills", place)):
                found += self._load_pinned_skills(_resolve_path(self.folder, folder))
        return found

    def _load_pinned_skills(self, folder: str) -> Skills:
        """Load the skills of a folder that the file names, if they are still those that were trusted with it."""
        if hash_skills(folder) != self.files.get(folder, UNREADABLE):
            raise ConfigError(f"the skills in {folder!r} have changed since the file was read: read it again")
        return load_skills_from(folder, pinned=True)

    def build_origin_extension(self, *, trusted: bool) -> Extension | None:
        """Return the extension that labels requests as `untrusted`, since others may have written their instructions.

        `None` if the user trusts the file or (`trusted`) the people who wrote its folder, or it has no instructions.
        """
        summary = "" if self.tables.compaction is None else self.tables.compaction.instructions
        if trusted or self.trusted or not (self.instructions or summary):
            return None
        return Extension(name="instructions_of_others", between_turns=[_label_request])

    def _extensions(self) -> list[Extension]:
        table, made = self.tables.extensions, list[Extension]()
        if table.large_results is not False:
            with self._errors_at(("extensions", "large_results")):
                made.append(large_results() if table.large_results is True else large_results(table.large_results))
        made += [short_results()] if table.short_results else []
        made += [history()] if table.history else []
        made += [notebook()] if table.notebook else []
        remembering = self.build_memory_extension()
        made += [] if remembering is None else [remembering]
        for place, name in enumerate(table.imports):
            with self._errors_at(("extensions", "imports", place)):
                made.append(import_extension(name, self._read_source))
        servers = self.build_mcp_extension()
        made += [] if servers is None else [servers]
        if table.tool_search is not False:
            with self._errors_at(("extensions", "tool_search")):
                made.append(tool_search() if table.tool_search is True else tool_search(threshold=table.tool_search))
        if table.code_mode:
            with self._errors_at(("extensions", "code_mode")):
                made.append(code_mode())
        return made

    def build_memory_extension(self) -> Extension | None:
        """Build the extension with the long-term memory that the file describes; None if it has no table `[memory]`."""
        table = self.tables.memory
        if table is None:
            return None
        from perdure._work.memory.database import get_default_memory_path
        from perdure._work.memory.long_term import LongTermMemory  # at first use: most files have no memory

        with self._errors_at(("memory",)):
            path = _resolve_path(self.folder, table.file) if table.file else get_default_memory_path()
            opened = LongTermMemory(path, user=table.user, project=table.project)
            return memory(opened, entities=table.entities, episodes=table.episodes, closes_memory=True)

    def build_mcp_extension(self) -> Extension | None:
        """Build the extension with the tools of the file's MCP servers; None if it names none.

        What was agreed to of them is remembered in `~/.perdure`, and so are logins. Raises `ConfigError` if the SDK is
        not installed.
        """
        servers = self.mcp_servers()
        if not servers:
            return None
        from perdure._mcp.client.client import require_sdk  # at first use: most files name no server
        from perdure._mcp.servers import McpServers, get_default_pins_path

        with self._errors_at(("mcp",)):
            require_sdk()
            from perdure._mcp.login.auth import build_login_resolver
            from perdure._mcp.login.file import LoginFile, get_default_logins_path

            login = build_login_resolver(LoginFile(get_default_logins_path()))
            return McpServers(*servers, pins=get_default_pins_path(), login=login).extension

    def build_schedules(self) -> "list[Schedule]":
        """Build the schedules of the file, for a `Scheduler`. They were checked when the file was read."""
        return [build_schedule(table) for table in self.tables.schedule]

    def _vault(self) -> Vault | None:
        table = self.tables.vault
        if table is None:
            return None
        with self._errors_at(("vault",)):
            vaults: list[Vault] = [] if table.environment is None else [EnvironmentVault(table.environment)]
            vaults += [FileVault(_resolve_path(self.folder, table.file))] if table.file else []
            vaults += [KeyringVault(table.keyring)] if table.keyring else []
            if not vaults:
                raise ConfigError("a vault needs a place: add environment, file or keyring")
            return first_of(*vaults)

    def _store(self) -> str:
        """Return the store, with its path made relative to the folder of the file."""
        scheme, colon, path = self.tables.store.partition(":")
        if scheme in {"file", "sqlite"} and path and not path.startswith("//"):
            return f"{scheme}{colon}{_resolve_path(self.folder, path)}"
        return self.tables.store or "memory:"

    @contextlib.contextmanager
    def _errors_at(self, path: ValuePath) -> Generator[None]:
        """Convert a `ConfigError` raised inside to a `BadConfig` about this value."""
        try:
            yield
        except ConfigError as error:
            raise BadConfig(self.path, [self.lines.build_fault(path, str(error))]) from error


def build_compaction(table: CompactionTable, model: Model | None = None) -> Compaction:
    """Build the `Compaction` that the `[compaction]` table of `perdure.toml` describes.

    Raises `ConfigError` for numbers that cannot work.
    """
    fields = {name: getattr(table, name) for name in CompactionOptions.__struct_fields__}
    return Compaction(**fields, model=model, strategy=keep_recent if table.strategy == "keep_recent" else None)


# -- from a file to a Config -------------------------------------------------------------------------------------------


def load_config(path: str | os.PathLike[str] = "perdure.toml", *, trusted: Trusted = False) -> Config:
    """Read and check a configuration file and the files it names. Nothing is imported, started or opened.

    Args:
        path: The file.
        trusted: True if it is trusted, or a function that decides by the SHA-256 of the file, of all files that it
            names and of its place (`Config.digest`), such as `TrustedFiles(path)`. Use `True` for a file that is part
            of your program. Without trust, keys that run, redirect or allow anything, or that choose the model, are
            refused. The user's own files, in `~/.config/perdure`, are always trusted.

    Raises `BadConfig` with all errors, each with its line.
    """
    source = read_toml(path)
    tables = convert_config(source)
    folder = _config_folder(source.path)
    loaded, believed = None, _is_trusted(source.path, trusted is True)
    if not believed and callable(trusted):  # then trust depends on all the files, which are read to be hashed
        loaded = _read_named_files(source, tables, ReferencedFiles(folder, is_trusted=True))
        believed = is_digest_trusted(trusted, loaded.digest)
    if not believed:
        _raise_restricted(source, list_restricted_settings(tables, folder), _describe_changes(trusted, source, loaded))
        loaded = None  # what was read without bounds is not used
    if loaded is None:
        loaded = _read_named_files(source, tables, ReferencedFiles(folder, is_trusted=believed))
    if not believed and list_roles_that_need_trust(loaded.roles):
        changes = _describe_changes(trusted, source, loaded)
        _raise_restricted(source, [(("roles",), "has roles that choose a model, or its address")], changes)
    _raise_faults(source, loaded)
    return Config(
        path=source.path,
        digest=loaded.digest,
        files=loaded.files,
        trusted=believed,
        tables=tables,
        instructions=loaded.instructions,
        roles=tuple(loaded.roles),
        servers=tuple(_read_all_servers(source, tables, folder, trusted)),
        problems=(*loaded.problems, *_describe_lowered_limits(tables, believed=believed)),
        given=frozenset(source.values),
        lines=source.lines,
        resolved_workdir=loaded.workdir,
    )


class _NamedContents(Struct, frozen=True, eq=False):
    """The contents of the files that a configuration names, and the digest of all of them."""

    digest: str
    files: Mapping[str, str]
    workdir: str
    instructions: str
    roles: Sequence[Role]
    problems: Sequence[str]
    faults: Sequence[ConfigFault]


def _read_named_files(source: ParsedConfigFile, tables: ConfigFile, named: ReferencedFiles) -> _NamedContents:
    """Read all files that a configuration names; problems are collected, since trust is decided first."""
    faults: list[ConfigFault] = []
    problems: list[str] = []

    def read(path: ValuePath, action: Callable[[], T], otherwise: T) -> T:
        try:
            return action()
        except ConfigError as error:
            faults.append(source.build_fault(path, str(error)))
            return otherwise

    load = partial(_load_roles, named, tables, problems)
    roles = read(("roles",), load, list[Role]()) if tables.roles else []
    workdir = read(("workdir",), lambda: _resolve_workdir(named, tables), "")
    if tables.role:
        read(("role",), lambda: find_role(roles, tables.role), None)
    if (table := tables.compaction) is not None:
        read(("compaction",), lambda: build_compaction(table), None)
    where: ValuePath = ("prompts",) if tables.prompts is not None else ("instructions_file",)
    instructions = read(where, lambda: _read_instructions(tables, named), "")
    for folder in () if isinstance(tables.skills, bool) else tables.skills:
        named.record_skills(folder)
    for file in (*tables.mcp.files, *filter(None, map(get_file_name, (*tables.tools, *tables.extensions.imports)))):
        named.record_file(file, MAX_BYTES)
    files = {os.path.realpath(os.path.expanduser(source.path)): source.content_hash, **named.digests}
    digest = compute_trust_digest(source.path, files)
    return _NamedContents(digest, files, workdir, instructions, roles, problems, faults)


def _raise_faults(source: ParsedConfigFile, loaded: _NamedContents) -> None:
    if loaded.faults:
        raise BadConfig(source.path, loaded.faults)


def _describe_changes(trusted: Trusted, source: ParsedConfigFile, loaded: _NamedContents | None) -> str:
    """Return which files have changed since the user trusted the configuration; empty if it was not trusted."""
    if not isinstance(trusted, TrustedFiles) or loaded is None:
        return ""
    changed = trusted.list_changes(source.path, loaded.files)
    return f"changed since you trusted it: {', '.join(map(repr, changed))}; " if changed else ""


def _describe_lowered_limits(tables: ConfigFile, *, believed: bool) -> list[str]:
    if believed:
        return []
    allowed = tighten_limits(tables.limits)
    return [
        f"limits.{name} is {getattr(tables.limits, name)}, and {getattr(allowed, name)} is used: "
        "a file that is not trusted can only lower limits"
        for name in list_raised_limits(tables.limits)
    ]


def _label_request(run: "Run") -> None:
    """Label the next request of a run as text of others."""
    label_requests(run, (UNTRUSTED_LABEL,), PROJECT_SOURCE)


def _label_role(role: Role) -> Role:
    """Return a role whose instructions others may have written."""
    return replace(role, labels=merge_labels(role.labels, (UNTRUSTED_LABEL,)))


def _config_folder(path: str) -> str:
    return os.path.dirname(os.path.realpath(os.path.expanduser(path)))


def _resolve_path(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _is_trusted(path: str, given: bool) -> bool:  # noqa: FBT001 - it is what the caller said
    """Return True if the caller trusts a configuration file, or it is in the user's own settings folder."""
    return given or is_path_below(_config_folder(path), os.path.realpath(get_config_folder()))


def _raise_restricted(source: ParsedConfigFile, found: Iterable[tuple[ValuePath, str]], changes: str) -> None:
    advice = f"{changes}{format_trust_advice(source.path)}; for a file of your own, use load_config(…, trusted=True)"
    faults = [
        source.build_fault(path, f"'{'.'.join(map(str, path))}' {what}, and the file is not trusted: {advice}")
        for path, what in found
    ]
    if faults:
        raise BadConfig(source.path, faults)


def _load_roles(named: ReferencedFiles, tables: ConfigFile, problems: list[str]) -> list[Role]:
    return load_roles(named.open_folder(tables.roles), problems=problems)


def _resolve_workdir(named: ReferencedFiles, tables: ConfigFile) -> str:
    path = named.open_folder(tables.workdir).root
    if not os.path.isdir(path):
        raise ConfigError(f"there is no folder {tables.workdir!r}: make it, or name another")
    return path


def _read_instructions(tables: ConfigFile, named: ReferencedFiles) -> str:
    if (table := tables.prompts) is not None:
        return Prompts(named.open_folder(table.directory), table.default).get(table.version)
    if tables.instructions_file:
        path = tables.instructions_file
        return decode_strictly(named.resolve(path), named.read_file(path, MAX_BYTES))
    return tables.instructions


def _read_all_servers(
    source: ParsedConfigFile, tables: ConfigFile, folder: str, trusted: Trusted
) -> Iterator[UnexpandedServers]:
    """Yield the MCP servers of the configuration file and of the files it names, which need their own trust."""
    seen = set(tables.mcp.servers)
    yield build_unexpanded_servers(source, ("mcp", "servers"), tables.mcp.servers)
    for place, name in enumerate(tables.mcp.files):
        path = _resolve_path(folder, name)
        believed = _is_trusted(path, trusted is True)
        found = read_unexpanded_servers(path, trusted=trusted if callable(trusted) and not believed else believed)
        if twice := sorted(seen & set(found.tables)):
            source.fail(("mcp", "files", place), f"there is a server {twice[0]!r} already: rename one of the two")
        seen |= set(found.tables)
        yield found
