"""Trust in the folder that a command works in: the record, and the question that is asked once a project."""

import os
from typing import TYPE_CHECKING

import click

from perdure._cli.terminal.frame import quote_text
from perdure._cli.terminal.output import TerminalOutput, to_one_line
from perdure._core.values.error import ConfigError
from perdure._io.home.paths import get_home_file_path

if TYPE_CHECKING:
    from perdure._config.trusted import TrustedFolders

    from .options import AgentOptions

MEANING = (
    "Trust means: you, or people you trust, wrote what is in this folder. Its git repository and its configuration\n"
    "are then used, and its text counts as yours. Without trust the agent can work on the files, but their text is\n"
    "treated like a page of a stranger.\n"
)
"""What trust in a folder means, in the question."""


def load_folder_trust() -> "TrustedFolders":
    """Return the record of folders that the user trusts, from `~/.perdure`."""
    from perdure._config.trusted import TrustedFolders

    return TrustedFolders(get_home_file_path("trusted-folders.json"))


def trust_folder(folder: str) -> list[str]:
    """Record that the user trusts a folder; return the paths of files that runs wrote there after text of others.

    From now on they count as the user's, too.
    """
    from perdure._io.files.origin import forget_recorded

    load_folder_trust().trust(folder)
    return forget_recorded(os.path.realpath(folder))


def is_folder_trusted(workdir: str) -> bool:
    """Return True if the user trusts a folder, or if there is nothing in it that needs trust.

    Raises `ConfigError` if the record cannot be used.
    """
    from perdure._config.trusted import find_folder_to_trust

    return find_folder_to_trust(workdir) is None or load_folder_trust().check(workdir) == "trusted"


def check_folder_trust(workdir: str, notes: list[str]) -> bool:
    """Return what `is_folder_trusted` does; if it is False, `notes` gets the reason, and how to trust the folder."""
    try:
        if is_folder_trusted(workdir):
            return True
        why = _describe_missing_trust(workdir)
    except ConfigError as error:
        why = f"the record of trusted folders is not used: {error}"
    notes.append(why)
    return False


def _describe_missing_trust(workdir: str) -> str:
    import shlex

    from perdure._config.trusted import find_folder_to_trust

    folder = find_folder_to_trust(workdir) or workdir
    named = os.path.relpath(folder)
    command = "perdure trust" if named == os.curdir else f"perdure trust {shlex.quote(named)}"
    replaced = load_folder_trust().check(workdir) == "replaced"
    why = "another one is in the place of a folder that you trusted" if replaced else "you have not said so"
    return (
        f"{quote_text(folder)} is not trusted ({why}): its git repository is used without its settings, and its text "
        f"counts as written by others; if you trust the people who wrote it: {command}"
    )


def find_folder_to_ask_about(options: "AgentOptions", suggested_model: str, workdir: str) -> str | None:
    """Return the folder about which a person has to be asked before an agent works in it; `None` if there is none.

    Nobody is asked twice, nor for an agent that reads no file of the project by itself, nor about the home folder.
    """
    from perdure._config.trusted import find_folder_to_trust

    from .model import ModelChoice, choose_model, is_in_process_model

    folder = find_folder_to_trust(workdir)
    if folder is None or (options.context is False and not options.coding):
        return None
    if not options.coding and not options.context:
        suggestion = ModelChoice(suggested_model, "") if suggested_model else None
        if is_in_process_model(choose_model(options.model, suggestion).model):
            return None
    record = load_folder_trust()
    return folder if record.can_trust(folder) and record.check(workdir) in {"unknown", "replaced"} else None


def ask_for_folder_trust(folder: str) -> bool:
    """Ask the user at the terminal whether to trust a folder, and record the answer; return True if it is trusted."""
    seen = identify_asked_folder(folder)
    TerminalOutput().write_question(f"{to_one_line(folder)}\n{MEANING}")
    return record_answer(folder, seen, is_trusted=click.confirm("Do you trust the files in this folder?", err=True))


def identify_asked_folder(folder: str) -> str:
    """Return what tells a folder from another that is put in its place while the user is asked about it."""
    from perdure._config.trusted import identify_folder

    return identify_folder(os.path.realpath(folder))


def record_answer(folder: str, seen: str, *, is_trusted: bool) -> bool:
    """Record whether the user trusts a folder, so that nobody is asked again; return `is_trusted`.

    Raises `ConfigError` if the folder is no longer the one that was identified as `seen` before the question.
    """
    if is_trusted:
        if identify_asked_folder(folder) != seen:
            raise ConfigError(
                f"another folder has taken the place of {quote_text(folder)} while you were asked: nothing is trusted; "
                "look at it, and try again"
            )
        trust_folder(folder)
    else:
        load_folder_trust().decline(folder)
    return is_trusted
