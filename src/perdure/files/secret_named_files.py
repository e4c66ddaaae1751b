"""Search a folder for files whose names suggest secrets, before a command reads everything in the folder."""

import os
from collections.abc import Collection, Sequence
from typing import Final

from .sensitive_names import SENSITIVE_NAMES, BlockedNames

MOST_ENTRIES: Final = 5_000
"""The most files and folders that are looked at; about more, nothing is known."""
_BLOCKED: Final = BlockedNames(SENSITIVE_NAMES)


def has_no_secrets(
    folder: str,
    above: Sequence[str] = (),
    *,
    hidden_paths: Collection[str] = (),
    skipped_names: Collection[str] = (),
    skips_hidden: bool = False,
    follows_links: bool = False,
) -> bool:
    """Return True if it is certain that no file below a folder has a name that suggests secrets.

    Args:
        folder: The real path of the folder; of a file, there is nothing below.
        above: The names that lead from the working folder to it.
        hidden_paths: Files and folders that are hidden from the command.
        skipped_names: Names of folders that are not entered.
        skips_hidden: Whether names that begin with a dot are left out.
        follows_links: Whether links are followed; then none may be there.
    """
    pending = [(folder, tuple(above))]
    seen = 0
    while pending:
        path, steps = pending.pop()
        try:
            with os.scandir(path) as entries:
                listed = [*entries]
        except NotADirectoryError:
            continue
        except OSError:
            return False
        seen += len(listed)
        if seen > MOST_ENTRIES:
            return False
        for each in listed:
            if (skips_hidden and each.name.startswith(".")) or (each.is_symlink() and not follows_links):
                continue
            is_folder = each.is_dir(follow_symlinks=False)
            if each.is_symlink():
                return False
            if is_folder and each.name in skipped_names:
                continue
            inside = (*steps, each.name)
            if each.path in hidden_paths:
                continue
            if _BLOCKED.find(inside, is_folder=is_folder):
                return False
            if is_folder:
                pending.append((each.path, inside))
    return True
