"""`perdure backup` and `perdure restore`. Above: `main.py`. Below: `upkeep.py`."""

import click

from .home import store_option, store_spec, use_store
from .screen import Screen, json_line, one_line


@click.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Write what was done as a line of JSON.")
@store_option
def backup(path: str, *, as_json: bool, store: str | None) -> None:
    """Write everything that is kept to PATH, where nothing must be yet, while it may be in use.

    What was stored before this began is in there. The search index is not: it is made anew.
    """
    from perdure.upkeep import maintained

    use_store(store, lambda opened: maintained(opened).backup(path))
    _tell(as_json=as_json, store=store_spec(store), backup=path, text=f"{store_spec(store)} is in {path}")


@click.command()
@click.argument("path", metavar="BACKUP")
@click.option("--json", "as_json", is_flag=True, help="Write what was done as a line of JSON.")
@store_option
def restore(path: str, *, as_json: bool, store: str | None) -> None:
    """Make a store out of BACKUP, which is looked at first. A store that is there already is left as it is."""
    import asyncio

    from perdure.upkeep import restore

    spec = store_spec(store)
    asyncio.run(restore(path, spec))
    _tell(as_json=as_json, store=spec, backup=path, text=f"{spec} holds what is in {path}")


def _tell(*, as_json: bool, store: str, backup: str, text: str) -> None:
    import msgspec

    if as_json:
        Screen().say(json_line(msgspec.json.encode({"store": store, "backup": backup})) + "\n")
    else:
        Screen().note(one_line(text))
