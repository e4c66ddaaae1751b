"""List the settings of a `perdure.toml` that require the user's trust before the file is used.

People who can write to a project can write its configuration. So until the user has trusted exactly this content, a
file may suggest how an agent answers, but not run anything, send anything elsewhere, allow more, or read outside its
folder.
"""

# ruff: noqa: PTH118 - a Path would cost milliseconds, and adds nothing here
import os
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from perdure.context.role import Role
from perdure.context.text_file import is_path_below

from .line_numbers import ValuePath
from .tables import ConfigFile

Restriction: TypeAlias = tuple[ValuePath, str]
"""Path of a setting that needs trust, and the effect that the setting would have."""


def list_restricted_settings(file: ConfigFile, folder: str) -> Iterator[Restriction]:
    """Yield the settings that need the user's trust: they run code, send data away, allow more, or leave `folder`."""
    named_skills = not isinstance(file.skills, bool) and bool(file.skills)
    summary_model = "" if file.compaction is None else file.compaction.model
    found: dict[ValuePath, tuple[object, str]] = {
        ("tools",): (file.tools, "imports code"),
        ("extensions", "imports"): (file.extensions.imports, "imports code"),
        ("mcp", "servers"): (file.mcp.servers, _CONNECTS),
        ("mcp", "files"): (file.mcp.files, _CONNECTS),
        ("store",): (file.store not in {"", "memory:"}, "decides where conversations are kept"),
        ("base_url",): (file.base_url, "sends conversations, and the key, to another address"),
        ("model",): (has_address(file.model), _SENDS),
        ("compaction", "model"): (has_address(summary_model), _SENDS),
        ("settings", "extra_body"): (file.settings.extra_body, "adds unchecked fields to requests"),
        ("permissions", "allow"): (file.permissions and file.permissions.allow, "allows calls without a question"),
        ("vault",): (file.vault is not None, "hands out secrets"),
        ("skills",): (named_skills, "trusts skills"),
    }
    yield from [(path, what) for path, (said, what) in found.items() if said]
    yield from _list_outside_paths(file, folder)


_CONNECTS = "starts programs or connects to servers"
_SENDS = "sends conversations to another address"


def _list_outside_paths(file: ConfigFile, folder: str) -> Iterator[Restriction]:
    paths: dict[ValuePath, str] = {
        ("instructions_file",): file.instructions_file,
        ("prompts", "directory"): "" if file.prompts is None else file.prompts.directory,
        ("roles",): file.roles,
        ("workdir",): file.workdir,
    }
    root = os.path.realpath(folder)
    for path, named in paths.items():
        if named and not is_path_below(os.path.realpath(os.path.join(root, os.path.expanduser(named))), root):  # noqa: PTH111
            yield path, "reads what lies outside the folder of the file"


def has_address(model: str) -> bool:
    """Return True if a model name contains a URL, so that conversations would be sent there."""
    return "://" in model


def list_restricted_roles(roles: Iterable[Role]) -> list[Role]:
    """Return the roles that need the user's trust: their model names a URL, to which conversations would be sent."""
    return [role for role in roles if has_address(role.model)]
