"""`perdure backup` and `perdure restore`: copy a whole store, and create a store from a copy."""

import click

from perdure._cli.home import resolve_store_spec, run_with_store, store_option
from perdure._cli.terminal.output import TerminalOutput, to_ascii_json, to_one_line


@click.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@store_option
def backup(path: str, *, as_json: bool, store: str | None) -> None:
    """Back up all sessions to PATH, which must not exist yet. The store may be in use.

    Everything stored before the start is included. The search index is not: it is rebuilt.
    """
    from perdure._runtime.maintenance import require_maintainable_store

    run_with_store(store, lambda opened: require_maintainable_store(opened).backup(path))
    _print_result(
        as_json=as_json,
        store=resolve_store_spec(store),
        backup=path,
        text=f"{resolve_store_spec(store)} is backed up to {path}",
    )


@click.command()
@click.argument("path", metavar="BACKUP")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@store_option
def restore(path: str, *, as_json: bool, store: str | None) -> None:
    """Create a store from BACKUP, which is checked first. An existing store is never replaced."""
    import asyncio

    from perdure._runtime.maintenance import restore

    spec = resolve_store_spec(store)
    asyncio.run(restore(path, spec))
    _print_result(as_json=as_json, store=spec, backup=path, text=f"{spec} is restored from {path}")


def _print_result(*, as_json: bool, store: str, backup: str, text: str) -> None:
    import msgspec

    if as_json:
        TerminalOutput().write(to_ascii_json(msgspec.json.encode({"store": store, "backup": backup})) + "\n")
    else:
        TerminalOutput().note(to_one_line(text))
