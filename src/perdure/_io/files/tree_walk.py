"""Walk the files below a folder of a `Jail`, except those that git ignores or that usually contain secrets."""

# ruff: noqa: PTH118, PTH120 - a Path would cost every start milliseconds
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from .confined_folder import FileRefused
from .head import UnreadableFile, read_file_head
from .ignore_rules import FILE_NAME, MOST_BYTES, IgnoreRules, is_ignored, parse_rules
from .jail import Jail

_VERSION_CONTROL: Final = ".git"


def walk_files(
    jail: Jail, start: Sequence[str], on_unreadable: Callable[[tuple[str, ...], OSError], None] | None = None
) -> Iterator[tuple[str, ...]]:
    """Yield the path of each regular file below a folder of a `Jail`, as a tuple of names, unsorted.

    Links are not followed. Folders that cannot be read are left out, and told to `on_unreadable`.
    """
    pending = [(tuple(start), _rules_above(jail, start))]
    while pending:
        steps, rules = pending.pop()
        try:
            entries = jail.scan(steps)
        except OSError as error:
            if on_unreadable is not None:
                on_unreadable(steps, error)
            continue
        names = {each.name for each in entries}
        if _VERSION_CONTROL in names:
            rules = ()  # a repository of its own, to which no rules from above apply
        if FILE_NAME in names:
            rules = (*rules, *_read_rules(jail, steps))
        for each in entries:
            path, is_folder = (*steps, each.name), each.kind == "folder"
            if each.kind not in {"file", "folder"} or each.name == _VERSION_CONTROL:
                continue
            if jail.find_blocked(path, is_folder=is_folder) or is_ignored(path, rules, is_folder=is_folder):
                continue
            if is_folder:
                pending.append((path, rules))
            else:
                yield path


def _rules_above(jail: Jail, start: Sequence[str]) -> tuple[IgnoreRules, ...]:
    """Return the rules of the folders above a folder, up to the root of its repository, the outermost first."""
    found: list[IgnoreRules] = []
    for depth in range(len(start) - 1, -1, -1):
        found += _read_rules(jail, start[:depth])
        if os.path.lexists(os.path.join(jail.root, *start[:depth], _VERSION_CONTROL)):
            return tuple(reversed(found))
    return (*find_rules_above(jail.root), *reversed(found))


def find_rules_above(root: str) -> tuple[IgnoreRules, ...]:
    """Return the ignore rules of the folders above a folder, up to the root of its repository, the outermost first."""
    found: list[IgnoreRules] = []
    below, folder = os.path.basename(root), os.path.dirname(root)  # noqa: PTH119
    names: tuple[str, ...] = (below,)
    if os.path.lexists(os.path.join(root, _VERSION_CONTROL)):
        return ()
    while True:
        try:
            text = read_file_head(os.path.join(folder, FILE_NAME), MOST_BYTES).data.decode("utf-8", "replace")
            found.append(IgnoreRules(-len(names), names, parse_rules(text)))
        except UnreadableFile:
            pass
        if folder == os.path.dirname(folder) or os.path.lexists(os.path.join(folder, _VERSION_CONTROL)):
            return tuple(reversed(found))
        names = (os.path.basename(folder), *names)  # noqa: PTH119
        folder = os.path.dirname(folder)


def _read_rules(jail: Jail, steps: Sequence[str]) -> list[IgnoreRules]:
    target = jail.resolve(os.path.join(jail.root, *steps, FILE_NAME))
    try:
        text = jail.read(target, MOST_BYTES).data.decode("utf-8", "replace")
    except FileRefused:
        return []
    return [IgnoreRules(len(steps), (), parse_rules(text))]
