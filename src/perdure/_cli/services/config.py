"""`perdure config`: show and check configuration files, and what people are asked before one is trusted.

Inspecting a file imports and starts nothing, and shows no value of an environment variable.
"""

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from perdure._cli.run.folder_trust import MEANING, identify_asked_folder, record_answer
from perdure._cli.terminal.frame import make_frame, quote_text, quote_unless_plain, split_pages
from perdure._cli.terminal.output import TerminalOutput, measure_terminal, to_ascii_json, to_one_line
from perdure._io.home.paths import get_home_file_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TextIO

    from perdure._config.lines import LineNumbers
    from perdure._config.load import Config
    from perdure._config.mcp_servers import UnexpandedServers
    from perdure._config.trusted import TrustedFiles

DEFAULT_FILE: Final = "perdure.toml"
"""Default name of the configuration file."""

path_argument = click.argument("path", metavar="[PATH]", default=DEFAULT_FILE)


def load_trust_record() -> "TrustedFiles":
    """Return the record of configuration files that the user trusts, from `~/.perdure`."""
    from perdure._config.trusted import TrustedFiles

    return TrustedFiles(get_home_file_path("trusted-files.json"))


@click.group(invoke_without_command=True)
@click.pass_context
def config(context: click.Context) -> None:
    """Show and check configuration files.

    These are perdure.toml and .mcp.json. To trust one: perdure trust perdure.toml
    """
    if context.invoked_subcommand is None:
        TerminalOutput().write(context.get_help() + "\n")


@config.command()
def schema() -> None:
    """Print the JSON Schema of perdure.toml, for editors."""
    import msgspec

    from perdure._config.schema import config_schema

    TerminalOutput().write(msgspec.json.format(msgspec.json.encode(config_schema()), indent=2).decode() + "\n")


@config.command()
@path_argument
@click.option("--json", "as_json", is_flag=True, help="Print it as a line of JSON.")
def show(path: str, *, as_json: bool) -> None:
    """Show the settings in a perdure.toml or .mcp.json file.

    Files that it names are included. Environment variables are shown by name only.
    """
    import msgspec

    look = read_config_for_review(path)
    encoded = msgspec.json.encode(look.settings)
    screen = TerminalOutput()
    screen.write((to_ascii_json(encoded) if as_json else msgspec.json.format(encoded, indent=2).decode()) + "\n")
    for note in look.notes(path):
        screen.note(note)


def print_json(value: dict[str, Any]) -> None:
    """Print an object as a line of JSON."""
    import msgspec

    TerminalOutput().write(to_ascii_json(msgspec.json.encode(value)) + "\n")


def ask_for_trust(path: str, look: "ConfigTrustReview", folder: str | None = None) -> bool:
    """Ask the user at the terminal whether to trust a configuration file, and record the trust if so.

    Shows first what the file could do. With `folder`, the same question is about the folder around it. Returns True if
    the user trusts it.
    """
    screen = TerminalOutput()
    seen = "" if folder is None else identify_asked_folder(folder)
    if folder is not None:
        screen.write_question(f"{to_one_line(folder)}\n{MEANING}")
    screen.write_question(f"{to_one_line(path)} is not trusted yet. With your trust it can do this:\n")
    if not confirm_trust(screen.write_question, sys.stderr, path, look, folder):
        return False
    return folder is None or record_answer(folder, seen, is_trusted=True)


def confirm_trust(
    write: "Callable[[str], None]",
    stream: "TextIO",
    path: str,
    look: "ConfigTrustReview",
    folder: str | None = None,
) -> bool:
    """Show what a configuration file could do, and trust it, and its folder if one is given, if the user says so."""
    count = len(look.restricted) + len(look.raised)
    question = f"Trust {quote_text(path)} as it is now, with the {count} setting{'' if count == 1 else 's'} above?"
    if folder is not None:
        question = f"Do you trust the files in this folder, and {question[:1].lower()}{question[1:-1]}?"
    if not show_restricted(write, stream, look, pages=True) or not click.confirm(question, err=True):
        return False
    store_trust(path, look)
    return True


def store_trust(path: str, look: "ConfigTrustReview") -> None:
    """Record that the user trusts a configuration file as it is now, and say so."""
    load_trust_record().trust(path, look.digest, look.files)
    TerminalOutput().note(to_one_line(f"{path} is trusted until it changes"))


def show_restricted(
    write: "Callable[[str], None]", stream: "TextIO", look: "ConfigTrustReview", *, pages: bool
) -> bool:
    """Show every setting that needs trust, and every file that the trust would cover, page by page.

    Returns False if the user stops before the last page.
    """
    frame = make_frame(stream)
    settings = {**look.restricted, **look.raised}
    for number, (name, effect) in enumerate(settings.items(), 1):
        frame.add_value(f"{number} of {len(settings)}, {quote_text(name)}", effect)
    for covered in sorted(look.files):
        frame.add_value("covers", covered)
    frame.add_label(f"sha256 {look.digest}")
    return show_rows(write, stream, frame.rows, pages=pages, refuse="do not trust it")


def show_rows(
    write: "Callable[[str], None]", stream: "TextIO", rows: "Sequence[str]", *, pages: bool, refuse: str
) -> bool:
    """Show framed rows, page by page, before a question about them: nothing scrolls away unseen.

    Returns False if the user stops before the last page; `refuse` says what that means.
    """
    shown = split_pages(rows, measure_terminal(stream).rows) if pages else [rows]
    for number, page in enumerate(shown, 1):
        write("".join([f"{row}\n" for row in page]))
        if number < len(shown):
            more = f"({sum(map(len, shown[:number])):,} of {len(rows):,} rows) Enter: more, n: {refuse}"
            if click.prompt(more, default="", show_default=False, err=True).strip().lower() in {"n", "no", "q"}:
                return False
    return True


# -- one look at a file ------------------------------------------------------------------------------------------------


class ConfigTrustReview(NamedTuple):
    """The settings of a valid configuration file, trusted or not, and which of them need trust."""

    digest: str
    files: "Mapping[str, str]"
    """SHA-256 of the file and of each file that it names, by path."""
    settings: dict[str, Any]
    """The settings of the file, as JSON values."""
    restricted: dict[str, str]
    """Settings that need trust, and the effect of each."""
    problems: tuple[str, ...]
    """Notes on parts of the file that were left out."""
    sources: "tuple[UnexpandedServers, ...]"
    raised: "Mapping[str, str]"
    """Limits that the file can raise only with trust."""
    lines: "LineNumbers | None" = None
    """Lines of the settings; `None` for a list of servers."""
    store: str = ""
    """The store of the file, with its path resolved; empty if it names none."""

    def check_variables(self) -> None:
        """Raise `BadConfig` if the file's MCP servers need environment variables that are not set."""
        for source in self.sources:
            source.expand_servers()

    def check_model_engine_and_store(self, path: str) -> None:
        """Raise `BadConfig` if there is no such model or engine, or no folder for the store. Keys are not needed."""
        from perdure._cli.home import check_store_folder
        from perdure._config.error import BadConfig, ConfigFault
        from perdure._core.values.error import ConfigError
        from perdure._engines.registry import open_engine

        faults: list[ConfigFault] = []
        model: str = self.settings.get("model") or ""
        has_code = self.settings.get("tools") or getattr(self.settings.get("extensions"), "imports", ())
        engine: str = "" if has_code else self.settings.get("engine") or ""  # what is imported may register it
        for name, value, check_value in (
            ("model", model, self._open_model),
            ("engine", engine, open_engine),
            ("store", self.store, check_store_folder),
        ):
            try:
                if value:
                    check_value(value)
            except ConfigError as error:
                faults.append(self.lines.build_fault((name,), str(error)) if self.lines else ConfigFault(0, str(error)))
        if faults:
            raise BadConfig(path, faults)

    def _open_model(self, model: str) -> None:
        """Open the model that the file names, with a placeholder key that is never sent. Raises `ConfigError`."""
        from perdure._cli.run.model import is_in_process_model
        from perdure._models.registry import open_model

        if is_in_process_model(model):  # it takes no options
            open_model(model)
        else:
            open_model(model, api_key="unused", base_url=self.settings.get("base_url") or "")

    def notes(self, path: str) -> list[str]:
        """Return notes for the user: which parts of the file were left out, and whether it needs trust."""
        needed = self.describe_needed_trust(path)
        return [*self.problems, needed] if needed else [*self.problems]

    def describe_needed_trust(self, path: str) -> str:
        """Return why the file needs trust and the command that grants it; empty if it needs none or is trusted."""
        import shlex

        if not self.restricted or load_trust_record()(self.digest):
            return ""
        names = ", ".join(map(quote_unless_plain, self.restricted))
        return f"it needs to be trusted for {names}: perdure trust {shlex.quote(path)}"


def read_config_for_review(path: str) -> ConfigTrustReview:
    """Read a configuration file for review: nothing it names is imported or started. Raises `BadConfig`."""
    if path.lower().endswith(".json"):
        from perdure._config.mcp_servers import read_unexpanded_servers

        return _inspect_servers(read_unexpanded_servers(path))
    from perdure._config.load import load_config

    return _inspect_config(load_config(path, trusted=True))


def _inspect_servers(found: "UnexpandedServers") -> ConfigTrustReview:
    restricted = _describe_servers(found)
    files = {found.source.path: found.source.content_hash}
    return ConfigTrustReview(found.source.digest, files, {"mcpServers": found.tables}, restricted, (), (found,), {})


def _inspect_config(found: "Config") -> ConfigTrustReview:
    from perdure._config.needs_trust import (
        list_raised_limits,
        list_restricted_settings,
        list_roles_that_need_trust,
    )

    tables = {name: getattr(found.tables, name) for name in found.tables.__struct_fields__}
    said = {
        "path": found.path,
        "sha256": found.digest,
        **{name: value for name, value in tables.items() if value is not None},
        "instructions": found.instructions,
        "workdir": found.workdir,
        "roles": found.roles,
        "mcp": {name: table for source in found.servers for name, table in source.tables.items()},
    }
    needs = {
        ".".join(map(str, key)): f"{what}: {_to_json(_value_at(found.tables, key))}"
        for key, what in list_restricted_settings(found.tables, found.folder)
    }
    if variables := _describe_variables(_to_json(found.tables.mcp.servers)):
        needs["mcp.servers"] += variables
    for source in found.servers:
        if source.path != ("mcp", "servers"):
            needs |= {f"{source.source.path}: {name}": each for name, each in _describe_servers(source).items()}
    for role in list_roles_that_need_trust(found.roles):
        needs[f"roles.{role.name}"] = f"chooses the model: {_to_json(role.model)}"
    raised: dict[str, str] = {}
    for name in list_raised_limits(found.tables.limits):
        raised[f"limits.{name}"] = f"raises a limit: {_to_json(getattr(found.tables.limits, name))}"
    store = found.build_options(["store"])["store"] if found.tables.store else ""
    return ConfigTrustReview(
        found.digest, found.files, said, needs, found.problems, found.servers, raised, found.lines, store
    )


def _describe_servers(found: "UnexpandedServers") -> dict[str, str]:
    """Return what each server of a list like `.mcp.json` could do, by its place in the file."""
    tables = {name: _to_json(table) for name, table in found.tables.items()}
    return {
        f"mcpServers.{name}": f"starts or reaches {table}{_describe_variables(table)}" for name, table in tables.items()
    }


def _describe_variables(servers: str) -> str:
    """Return which environment variables MCP servers get, as text; they may be keys. Empty if they get none."""
    from perdure._config.variables import list_variable_names

    names = list_variable_names(servers)
    return f"; gives it the values of the environment variables {', '.join(names)}" if names else ""


def _value_at(tables: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        tables = getattr(tables, str(step))
    return tables


def _to_json(value: Any) -> str:
    """Return a value of the file as JSON, in full: the user who trusts it must see everything."""
    import msgspec

    return msgspec.json.encode(value).decode()
