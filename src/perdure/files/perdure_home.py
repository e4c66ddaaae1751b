"""The folder with what the runtime keeps for a user: `~/.perdure`, or the one that PERDURE_HOME names.

Trust, grants, logins and sessions are there, so it is never guessed: without a home folder, every use is refused.
"""

# ruff: noqa: PTH111, PTH117, PTH118 - pathlib would cost every start milliseconds
import os
from typing import Final

from perdure.core.error import ConfigError

HOME_VARIABLE: Final = "PERDURE_HOME"
_USUAL: Final = "~/.perdure"


def get_perdure_home() -> str:
    """Return the absolute path of the user's folder of the runtime: PERDURE_HOME, or else `~/.perdure`.

    Raises `ConfigError` if PERDURE_HOME is a relative path, which would lead into every project, and if there is no
    home folder.
    """
    given = os.environ.get(HOME_VARIABLE)
    path = os.path.expanduser(given or _USUAL)
    if os.path.isabs(path):
        return os.path.normpath(path)
    if given and not given.startswith("~"):
        raise ConfigError(
            f"PERDURE_HOME is {given!r}, a relative path: set it to an absolute one, such as /srv/perdure"
        )
    raise ConfigError(
        "there is no home folder: HOME is not an absolute path, or is not set and the system does not know this user; "
        "set PERDURE_HOME to the absolute path of a folder of your own"
    )


def get_user_home() -> str:
    """Return the absolute path of the user's home folder; without one, a path at which nothing can be.

    A relative one would lead into the working folder, whose files would count as the user's own.
    """
    return os.path.expanduser("~") if has_user_home() else os.devnull


def has_user_home() -> bool:
    """Return False if HOME is a relative path, or is not set and the system does not know the user."""
    return os.path.isabs(os.path.expanduser("~"))


def expand_user_path(path: str) -> str:
    """Return a path with `~` at its beginning replaced by the home folder.

    Raises `ConfigError` if there is none: `~` would be a folder in the working folder, which a repository can bring.
    """
    found = os.path.expanduser(path)
    if (path == "~" or path.startswith("~/")) and not os.path.isabs(found):
        raise ConfigError(
            f"{path!r} is in the home folder, and there is none: HOME is not an absolute path, or is not set and the "
            "system does not know this user; give an absolute path"
        )
    return found


def get_user_folder(variable: str, usual: str, home: str = "") -> str:
    """Return a folder of the user, such as that of settings: what a variable names, if that is absolute, or `usual`.

    `usual` is relative to the home folder.
    """
    given = os.environ.get(variable, "")
    return given if os.path.isabs(given) else os.path.join(home or get_user_home(), usual)


def get_home_file_path(name: str) -> str:
    """Return the absolute path of the file `name` in the user's folder of the runtime. Raises `ConfigError`."""
    return os.path.join(get_perdure_home(), name)
