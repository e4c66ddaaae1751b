"""Find the `perdure.toml` for a working folder, and load it if the user trusts it or it needs no trust.

A file is used as a whole or not at all. One that cannot be used is an error, also if it was merely found: without it
another model, another store or no denials would be used. `--no-config` ignores it.
"""

# ruff: noqa: PTH110, PTH118, PTH120 - pathlib would cost every start milliseconds
import os
from typing import TYPE_CHECKING, Final

from perdure._cli.services.config import DEFAULT_FILE, ask_for_trust, load_trust_record, read_config_for_review
from perdure._cli.terminal.frame import quote_text
from perdure._core.values.error import ConfigError

from .folder_trust import ask_for_folder_trust, find_folder_to_ask_about

if TYPE_CHECKING:
    from perdure._cli.services.config import ConfigTrustReview
    from perdure._config.load import Config

    from .options import AgentOptions

_WITHOUT: Final = "to run without it: --no-config"


def read_config(options: "AgentOptions", workdir: str) -> "Config | None":
    """Load the file of `--config`, or the nearest `perdure.toml`, if any. Raises `ConfigError` if it is unusable."""
    path = find_config_path(options, workdir)
    if path is None:
        return None
    from perdure._config.load import load_config

    if options.config is None and not _is_inside_project(path, workdir):
        raise ConfigError(f"{path} is not used: it is a link that leads out of the project; {_WITHOUT}")
    try:
        return load_config(path, trusted=load_trust_record())
    except ConfigError as error:
        raise ConfigError(describe_unusable_config(path, error, is_named=options.config is not None)) from error


def find_config_path(options: "AgentOptions", workdir: str) -> str | None:
    """Return the path of `--config`, or of the nearest `perdure.toml`; `None` with `--no-config`, or if there is none.

    Raises `ConfigError` for both options at once.
    """
    if options.no_config:
        if options.config is not None:
            raise ConfigError("--config and --no-config exclude each other; give one of them")
        return None
    if options.config is not None:
        return options.config
    return find_nearest(DEFAULT_FILE, workdir, skip_empty_folders=True)


def offer_trust(options: "AgentOptions", workdir: str = os.curdir) -> None:
    """Ask the user once to trust the folder, and the configuration file, whichever needs it.

    Raises `ConfigError` if the user declines to trust the file. A folder that is declined is used as that of others.
    Nothing is asked about an invalid file: its errors are reported when it is read.
    """
    path = find_config_path(options, workdir)
    look = None if path is None else _review_config(path, options, workdir)
    model = "" if look is None else look.settings.get("model") or ""
    folder = find_folder_to_ask_about(options, model, workdir)
    if path is not None and look is not None and look.describe_needed_trust(path):
        if not ask_for_trust(path, look, folder):
            raise ConfigError(f"{quote_text(path)} is not trusted, so nothing was run; {_WITHOUT}")
    elif folder is not None:
        ask_for_folder_trust(folder)


def _review_config(path: str, options: "AgentOptions", workdir: str) -> "ConfigTrustReview | None":
    """Return the review of a configuration file; `None` for one that cannot be used: the reason is told later."""
    if options.config is None and not _is_inside_project(path, workdir):
        return None
    try:
        return read_config_for_review(path)
    except ConfigError:
        return None


def _is_inside_project(path: str, workdir: str) -> bool:
    """Return True if a configuration file that was found, not named, lies inside the project, with links resolved."""
    from perdure._context.project import Project
    from perdure._io.files.head import is_path_below

    return is_path_below(os.path.realpath(path), Project(workdir).root)


def describe_unusable_config(path: str, error: ConfigError, *, is_named: bool) -> str:
    """Return the message that says why a configuration file is not used: it needs trust, or its first error."""
    import shlex

    try:
        why = read_config_for_review(path).describe_needed_trust(path)
    except ConfigError:
        why = ""
    if not why:
        first, *more = str(error).splitlines()
        why = f"{first} (and {len(more)} more errors: perdure config check {shlex.quote(path)})" if more else first
    return f"{path} is not used: {why}" if is_named else f"{path} is not used: {why}; {_WITHOUT}"


def find_nearest(name: str, workdir: str, *, skip_empty_folders: bool = False) -> str | None:
    """Return the path of the nearest file or folder called `name`: in `workdir`, or above it in the same repository.

    An empty folder in the place of a file is there while a sandboxed command runs, so that the command cannot create
    the file; `skip_empty_folders` goes on as if it were not there.
    """
    for folder in list_parent_folders(workdir):
        path = os.path.join(folder, name)
        if os.path.lexists(path) and not (skip_empty_folders and _is_empty_folder(path)):
            return os.path.relpath(path) if workdir == os.curdir else path
    return None


def _is_empty_folder(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except OSError:  # a file, or a folder that cannot be read
        return False


def list_parent_folders(workdir: str) -> list[str]:
    """Return `workdir` and its parents up to the root of the repository; outside a repository, only `workdir`."""
    from perdure._context.project import Project

    try:
        project = Project(workdir)
    except (ConfigError, OSError):  # it was deleted meanwhile
        return []
    folders = [project.workdir]
    if os.path.exists(os.path.join(project.root, ".git")):
        while folders[-1] != project.root:
            folders.append(os.path.dirname(folders[-1]))
    return folders
