"""Find a program on PATH that no project could have put there."""

# ruff: noqa: PTH117, PTH118, PTH120 - a Path would cost every start milliseconds
import os
import shutil
from typing import Final

from perdure.files.perdure_home import get_user_home

_REPOSITORY: Final = ".git"


def find_program_outside(name: str, folder: str) -> str:
    """Return the path of a program on PATH; empty if there is none outside a folder and the repository around it.

    A PATH often leads into a project, such as to the programs of its virtual environment, which a command may have
    written. A program that is started for the runtime itself is none of these.
    """
    project = _find_project(os.path.realpath(folder))
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which(name, path=place) if os.path.isabs(place) else None
        if found and not any(_is_inside(os.path.realpath(each), project) for each in (found, os.path.dirname(found))):
            return found
    return ""


def _find_project(folder: str) -> str:
    """Return the root of the repository around a folder; without one, or if that is a whole home, the folder."""
    homes = {os.path.realpath(get_user_home()), os.path.realpath(os.sep)}
    above = folder
    while above not in homes:
        if os.path.lexists(os.path.join(above, _REPOSITORY)):
            return above
        if (next_above := os.path.dirname(above)) == above:
            break
        above = next_above
    return folder


def _is_inside(path: str, folder: str) -> bool:
    return f"{path}{os.sep}".startswith(folder.rstrip(os.sep) + os.sep)
