"""`perdure config`: what a configuration file says, whether it is right, and trusting it. Above: `main.py`.

Below: `perdure.config`. Looking at a file imports and starts nothing, and shows no value of the environment.
"""

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from .home import home_file
from .screen import Screen, json_line, one_line, report_error, visible

if TYPE_CHECKING:
    from perdure.config import Config
    from perdure.configuring.mcp_servers import ServerSource
    from perdure.configuring.trusted import TrustedFiles

FILE: Final = "perdure.toml"
"""What is meant when no file is named."""

_path_argument = click.argument("path", metavar="[PATH]", default=FILE)


def trusted_files() -> "TrustedFiles":
    """The files that somebody has agreed to."""
    from perdure.configuring.trusted import TrustedFiles

    return TrustedFiles(home_file("trusted-files.json"))


@click.group(invoke_without_command=True)
@click.pass_context
def config(context: click.Context) -> None:
    """Show, check and trust configuration files: perdure.toml, and .mcp.json."""
    if context.invoked_subcommand is None:
        Screen().say(context.get_help() + "\n")


@config.command()
def schema() -> None:
    """Write the JSON Schema of perdure.toml, for editors."""
    import msgspec

    from perdure.config import config_schema

    Screen().say(msgspec.json.format(msgspec.json.encode(config_schema()), indent=2).decode() + "\n")


@config.command()
@_path_argument
@click.pass_context
def check(context: click.Context, /, path: str) -> None:
    """Check a file: each fault is a line of its own, and the exit code is 2 if there is any."""
    from perdure.config import BadConfig

    try:
        look = looked_at(path)
        look.expand()
    except BadConfig as error:
        for line in str(error).splitlines():
            report_error(line)
        context.exit(error.exit_code)
    screen = Screen()
    for note in look.notes(path):
        screen.note(note)
    screen.say(f"{one_line(path)} is right\n")


@config.command()
@_path_argument
@click.option("--json", "as_json", is_flag=True, help="Write it as a line of JSON.")
def show(path: str, *, as_json: bool) -> None:
    """Show what a file says, with what it names. Variables of the environment are shown by their names."""
    import msgspec

    look = looked_at(path)
    encoded = msgspec.json.encode(look.said)
    screen = Screen()
    screen.say((json_line(encoded) if as_json else msgspec.json.format(encoded, indent=2).decode()) + "\n")
    for note in look.notes(path):
        screen.note(note)


@config.command()
@_path_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--revoke", is_flag=True, help="Take it back.")
@click.pass_context
def trust(context: click.Context, /, path: str, *, yes: bool, revoke: bool) -> None:
    """Agree to a file as it is now: to what it imports, starts, redirects and allows. When it changes, agree again."""
    screen = Screen()
    look = looked_at(path)
    if revoke:
        done = trusted_files().revoke(path, look.digest)
        screen.note(one_line(f"{path} is {'not trusted any more' if done else 'not trusted anyway'}"))
        return
    for name, what in look.restricted.items():
        screen.say(f"{name}: {what}\n")
    screen.say(f"sha256 {look.digest}\n")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here; say --yes to trust the file")
        if not click.confirm(visible(f"Trust {path!r} as it is now?"), err=True):
            context.exit(1)
    trusted_files().trust(path, look.digest)
    screen.note(one_line(f"{path} is trusted, as long as it does not change"))


# -- one look at a file ------------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """A file without a fault, as it was when it was read, once."""

    digest: str
    said: dict[str, Any]
    """What it amounts to."""
    restricted: dict[str, str]
    """Its values that need trust, and what each would do."""
    problems: tuple[str, ...]
    """What was left out."""
    sources: "tuple[ServerSource, ...]"

    def expand(self) -> None:
        """Complain about variables that its servers need and that are not set."""
        for source in self.sources:
            source.servers()

    def notes(self, path: str) -> list[str]:
        """What somebody should know of it."""
        needed = self.needs_trust(path)
        return [*self.problems, needed] if needed else [*self.problems]

    def needs_trust(self, path: str) -> str:
        """For what somebody has to agree to it first, and how; empty when nobody has to, or somebody has."""
        import shlex

        if not self.restricted or trusted_files()(self.digest):
            return ""
        names = ", ".join(self.restricted)
        return f"it is not trusted yet, which it needs for {names}: perdure config trust {shlex.quote(path)}"


def looked_at(path: str) -> Look:
    """A file as it is now, whether it is trusted or not. Raises `BadConfig` for its faults."""
    if path.lower().endswith(".json"):
        from perdure.configuring.mcp_servers import read_servers

        return _look_at_servers(read_servers(path))
    from perdure.config import load_config

    return _look_at_config(load_config(path, trusted=True))


def _look_at_servers(found: "ServerSource") -> Look:
    restricted = {f"mcpServers.{name}": f"starts or reaches {_value(table)}" for name, table in found.tables.items()}
    return Look(found.source.digest, {"mcpServers": found.tables}, restricted, (), (found,))


def _look_at_config(found: "Config") -> Look:
    from perdure.configuring.restriction import restricted, restricted_roles

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
        ".".join(map(str, key)): f"{what}: {_value(_at(found.tables, key))}"
        for key, what in restricted(found.tables, found.folder)
    }
    for role in restricted_roles(found.roles):
        needs[f"roles.{role.name}"] = f"sends conversations to an address of its own: {_value(role.model)}"
    return Look(found.digest, said, needs, found.problems, found.servers)


def _at(tables: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        tables = getattr(tables, str(step))
    return tables


def _value(value: Any) -> str:
    """A value of a file, whole: whoever agrees to it has to see all of it."""
    import msgspec

    return msgspec.json.encode(value).decode()
