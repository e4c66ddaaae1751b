"""What a file may not say before it is trusted. Above: `config.py`, the command line. Below: `tables.py`.

Whoever can write to a project can write its configuration. So before somebody has agreed to exactly this content, it
may suggest how an agent answers, and neither run anything, nor send anything elsewhere, nor let more through, nor read
what lies outside its folder.
"""

# ruff: noqa: PTH118 - a Path would cost milliseconds, and adds nothing here
import os
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from perdure.context.role import Role
from perdure.context.text_file import lies_below

from .lines import Path
from .tables import ConfigFile

Restriction: TypeAlias = tuple[Path, str]
"""A value that needs trust, and what it would do."""


def restricted(file: ConfigFile, folder: str) -> Iterator[Restriction]:
    """The values of a file, in this folder, that need trust."""
    named_skills = not isinstance(file.skills, bool) and bool(file.skills)
    summary_model = "" if file.compaction is None else file.compaction.model
    found: dict[Path, tuple[object, str]] = {
        ("tools",): (file.tools, "imports code"),
        ("extensions", "imports"): (file.extensions.imports, "imports code"),
        ("mcp", "servers"): (file.mcp.servers, _CONNECTS),
        ("mcp", "files"): (file.mcp.files, _CONNECTS),
        ("store",): (file.store not in {"", "memory:"}, "decides where conversations are kept"),
        ("base_url",): (file.base_url, "sends conversations, and the key, to another address"),
        ("model",): (is_address(file.model), _SENDS),
        ("compaction", "model"): (is_address(summary_model), _SENDS),
        ("settings", "extra_body"): (file.settings.extra_body, "adds to requests what nobody checks"),
        ("permissions", "allow"): (file.permissions and file.permissions.allow, "allows calls without a question"),
        ("vault",): (file.vault is not None, "hands out secrets"),
        ("skills",): (named_skills, "vouches for skills"),
    }
    yield from [(path, what) for path, (said, what) in found.items() if said]
    yield from _outside(file, folder)


_CONNECTS = "starts programs or connects to servers"
_SENDS = "sends conversations to an address of its own"


def _outside(file: ConfigFile, folder: str) -> Iterator[Restriction]:
    paths: dict[Path, str] = {
        ("instructions_file",): file.instructions_file,
        ("prompts", "directory"): "" if file.prompts is None else file.prompts.directory,
        ("roles",): file.roles,
        ("workdir",): file.workdir,
    }
    root = os.path.realpath(folder)
    for path, named in paths.items():
        if named and not lies_below(os.path.realpath(os.path.join(root, os.path.expanduser(named))), root):  # noqa: PTH111
            yield path, "reads what lies outside the folder of the file"


def is_address(model: str) -> bool:
    """Whether the name of a model says where it is."""
    return "://" in model


def restricted_roles(roles: Iterable[Role]) -> list[Role]:
    """Those that need trust, as they send conversations to an address of their own."""
    return [role for role in roles if is_address(role.model)]
