"""The environment of commands when none is given: the project's programs, a home, and who commits."""

# ruff: noqa: PTH113, PTH117, PTH118 - before the first command, where pathlib would cost milliseconds
import os
from functools import cache
from typing import Final

from perdure._io.home.paths import get_user_home
from perdure._tools.sandbox.bubblewrap import find_own_home_folders
from perdure._tools.sandbox.shown_folders import is_below, list_hidden_folders

_PROGRAM_FOLDER: Final = "bin"


def build_confined_environment(root: str) -> dict[str, str]:
    """Return the environment of commands in the sandbox: of the project, and of who commits.

    HOME is the user's home where the sandbox shows an empty one with toolchains in it, and else its empty `/tmp`.
    """
    homes = find_own_home_folders()
    hidden = list_hidden_folders(homes)
    home = next((each for each in homes if any(each == other or is_below(each, other) for other in hidden)), "")
    environment = _find_project_environment(root)
    return {
        **_build_variables(root, home or "/tmp", environment),  # noqa: S108 - a private one
        **_read_git_identity(get_user_home()),
    }


def build_unconfined_environment(root: str, private_folder: str) -> dict[str, str]:
    """Return the environment of commands without a sandbox, whose home and temporary folder are in a private folder.

    In a folder that others can write to, such as `/tmp`, anybody could leave a `.gitconfig` that names programs to run.
    The user's own home would offer its keys to every program that looks for some there.
    """
    home, temporary = [os.path.join(private_folder, name) for name in ("home", "tmp")]
    for folder in (home, temporary):
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    active = os.environ.get("VIRTUAL_ENV", "")
    is_outside = os.path.isabs(active) and not is_below(os.path.join(os.path.realpath(active), "x"), root)
    variables = _build_variables(root, home, active if is_outside else "")
    return {**variables, "TMPDIR": temporary, **_read_git_identity(get_user_home())}


def _build_variables(root: str, home: str, environment: str) -> dict[str, str]:
    """Return the variables that every command gets.

    Of the PATH of this process, folders that are relative or below the root are left out: a program there may have been
    written by the model.
    """
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = [each for each in given if os.path.isabs(each) and not is_below(f"{os.path.realpath(each)}/x", root)]
    variables = {"PATH": os.pathsep.join(path), "HOME": home, "LANG": "C.UTF-8", "TERM": "dumb"}
    if environment:
        programs = os.path.join(environment, _PROGRAM_FOLDER)
        rest = [each for each in path if each != programs]
        variables |= {"PATH": os.pathsep.join([programs, *rest]), "VIRTUAL_ENV": environment}
    return variables


def _find_project_environment(root: str) -> str:
    """Return the virtual environment of a project: the active one, or `.venv` in its folder; empty if there is none.

    One in the folder may have been changed by a command, so that it is for commands in the sandbox alone.
    """
    active = os.environ.get("VIRTUAL_ENV", "")
    for folder in (active, os.path.join(root, ".venv")):
        if os.path.isabs(folder) and os.path.isfile(os.path.join(folder, "pyvenv.cfg")):
            return folder
    return ""


@cache
def _read_git_identity(home: str) -> dict[str, str]:
    """Return the variables that say who commits, from the user's own settings of git: none of a repository is read."""
    from perdure._tools.git.configuration import (
        read_user_configuration,  # before the first command, and not at the start
    )

    known = {each.full_key: each.value for each in read_user_configuration(os.devnull, home) if not each.name}
    variables: dict[str, str] = {}
    for key, name in (("user.name", "NAME"), ("user.email", "EMAIL")):
        for role in ("AUTHOR", "COMMITTER"):
            value = os.environ.get(f"GIT_{role}_{name}") or known.get(key, "")
            if value:
                variables[f"GIT_{role}_{name}"] = value
    return variables
