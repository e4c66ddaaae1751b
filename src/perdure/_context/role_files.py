"""Load roles from the files of a folder, and find one by name.

A file is Markdown: its front matter may have `name`, `description` and `model`, and its body is the instructions. A
file that cannot be used is reported and left out; the others are loaded.
"""

# ruff: noqa: PTH118 - a Path would cost every start milliseconds
import logging
import os
from collections.abc import Iterable
from typing import Final

from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._io.files.confined_folder import ConfinedFolder

from .front_matter import parse_front_matter
from .role import Role
from .text_files import read_confined_text

MOST_BYTES: Final = 256 * 1024
"""Maximum size of a file."""
MOST_FILES: Final = 500
"""Maximum number of files in a folder; more are left out."""

_FIELDS: Final = ("name", "description", "model")
_log = logging.getLogger("perdure.context")


def load_roles(directory: str | os.PathLike[str] | ConfinedFolder, *, problems: list[str] | None = None) -> list[Role]:
    """Load the roles in the `*.md` files of a folder, sorted by name; an empty list if there is no such folder.

    A link in the folder that leads out of it is left out. Problems are appended to `problems`, a sentence each; without
    such a list, they are logged.
    """
    if not isinstance(directory, str | os.PathLike | ConfinedFolder):
        checks.raise_config_error("load_roles", "directory", directory, "give the path of a folder")
    folder = directory if isinstance(directory, ConfinedFolder) else ConfinedFolder(directory)
    told: list[str] = []
    found: dict[str, Role] = {}
    for name in list_markdown_files(folder, told):
        try:
            role = _read_role(folder, name)
        except ConfigError as error:
            told.append(f"the role in {os.path.join(folder.root, name)!r} is left out: {error}")
            continue
        if found.setdefault(role.name, role) is not role:
            told.append(
                f"the role in {os.path.join(folder.root, name)!r} is left out: another file has {role.name!r} already"
            )
    _report_problems(told, problems)
    return sorted(found.values(), key=lambda role: role.name)


def find_role(roles: Iterable[Role], name: str) -> Role:
    """Return the first role with this name. Raise `ConfigError`, which lists the known roles, if there is none."""
    by_name: dict[str, Role] = {}
    for each in roles:
        by_name.setdefault(each.name, each)
    if isinstance(name, str) and (role := by_name.get(name)) is not None:
        return role
    raise ConfigError(f"there is no role {name!r}{_suggest_role_names(name, sorted(by_name))}")


def list_markdown_files(folder: ConfinedFolder, problems: list[str]) -> list[str]:
    """Return the sorted names of the `*.md` files of a folder, at most `MOST_FILES` of them."""
    try:
        names = sorted(name for name in folder.list_names() if name.endswith(".md") and not name.startswith("."))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        problems.append(f"the folder {folder.root!r} cannot be read: {getattr(error, 'strerror', None) or error}")
        return []
    if len(names) > MOST_FILES:
        problems.append(f"the folder {folder.root!r} has {len(names)} files, of which the first {MOST_FILES} are read")
    return names[:MOST_FILES]


def _read_role(folder: ConfinedFolder, name: str) -> Role:
    matter = parse_front_matter(read_confined_text(folder, name, MOST_BYTES))
    fields = {"name": name.removesuffix(".md"), **{key: matter.fields[key] for key in _FIELDS if key in matter.fields}}
    for key, value in fields.items():
        if not isinstance(value, str):
            raise ConfigError(f"line {matter.lines[key]}: {key!r} is not text: write it on one line")
    return Role(instructions=matter.body.strip(), **{key: value.strip() for key, value in fields.items()})


def _suggest_role_names(name: object, known: list[str]) -> str:
    if not known:
        return ": there are no roles at all"
    import difflib

    near = difflib.get_close_matches(str(name), known, n=1)
    return f"{f'; did you mean {near[0]!r}?' if near else ';'} there are {', '.join(map(repr, known))}"


def _report_problems(told: list[str], problems: list[str] | None) -> None:
    if problems is not None:
        problems += told
        return
    for each in told:
        _log.warning("%s", each)
