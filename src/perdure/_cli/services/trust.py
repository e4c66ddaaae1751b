"""`perdure trust`: trust a folder, or a configuration file, and revoke that."""

# ruff: noqa: PTH112 - pathlib would cost every start milliseconds
import os
import sys
from typing import TYPE_CHECKING

import click

from perdure._cli.run.folder_trust import load_folder_trust, trust_folder
from perdure._cli.terminal.output import TerminalOutput, to_one_line

from .config import confirm_trust, load_trust_record, print_json, read_config_for_review, show_restricted, store_trust

if TYPE_CHECKING:
    from .config import ConfigTrustReview


@click.command()
@click.argument("path", metavar="[PATH]", default=os.curdir)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation about a configuration file.")
@click.option("--revoke", is_flag=True, help="Revoke the trust.")
@click.option("--list", "as_list", is_flag=True, help="List the trusted folders.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@click.pass_context
def trust(context: click.Context, /, path: str, *, yes: bool, revoke: bool, as_list: bool, as_json: bool) -> None:
    """Trust a folder, or a configuration file as it is now. PATH is this folder by default.

    Trust in a folder means that you, or people you trust, wrote what is in it and below it: its git repository and its
    configuration are used, and its text counts as yours. A folder that replaces it is not trusted. What runs write
    there after they have read text of others, such as a web page, counts as text of others until you trust the folder
    again.

    A configuration file, such as perdure.toml or .mcp.json, may then import, start, redirect and allow what it names.
    Any change of it, or of a file that it names, needs new trust.
    """
    if as_list:
        _list_folders(as_json=as_json)
    elif os.path.isdir(path):
        _trust_folder(path, revoke=revoke, as_json=as_json)
    else:
        context.exit(_trust_file(path, yes=yes, revoke=revoke, as_json=as_json))


def _list_folders(*, as_json: bool) -> None:
    record = load_folder_trust()
    for each in record.list_trusted():
        is_trusted = record.check(each) == "trusted"
        if as_json:
            print_json({"path": each, "trusted": is_trusted})
        else:
            TerminalOutput().write(to_one_line(each) + ("\n" if is_trusted else "  (gone, or replaced: not trusted)\n"))


def _trust_folder(path: str, *, revoke: bool, as_json: bool) -> None:
    record, folder = load_folder_trust(), os.path.realpath(path)
    if revoke:
        done = record.revoke(folder)
        told = "is no longer trusted" if done else "is not trusted anyway"
        if record.check(folder) == "trusted":
            told = "is still trusted, by a folder above it: perdure trust --list"
    else:
        count = len(trust_folder(folder))
        told = "is trusted, with the folders in it"
        if count:
            told += f", and with what runs wrote there after text of others: {count} path{'s' if count > 1 else ''}"
    if as_json:
        print_json({"path": folder, "trusted": record.check(folder) == "trusted"})
    else:
        TerminalOutput().note(to_one_line(f"{folder} {told}"))


def _trust_file(path: str, *, yes: bool, revoke: bool, as_json: bool) -> int:
    """Trust a configuration file, or revoke that, and return the exit code of the command."""
    look, write = read_config_for_review(path), TerminalOutput().write
    if revoke:
        done = load_trust_record().revoke(path)
        if as_json:
            _print_file(path, look, is_trusted=False)
        else:
            TerminalOutput().note(to_one_line(f"{path} is {'no longer trusted' if done else 'not trusted anyway'}"))
        return 0
    if not yes and (as_json or not sys.stdin.isatty()):
        raise click.UsageError("there is no terminal to ask at; use --yes to trust the file")
    if as_json:
        load_trust_record().trust(path, look.digest, look.files)
        _print_file(path, look, is_trusted=True)
    elif yes:
        show_restricted(write, sys.stdout, look, pages=False)
        store_trust(path, look)
    elif not confirm_trust(write, sys.stdout, path, look):
        return 1
    return 0


def _print_file(path: str, look: "ConfigTrustReview", *, is_trusted: bool) -> None:
    settings = {**look.restricted, **look.raised}
    print_json(
        {"path": path, "trusted": is_trusted, "digest": look.digest, "files": sorted(look.files), "settings": settings}
    )
