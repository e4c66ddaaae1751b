"""List the settings of a `perdure.toml` that require the user's trust before the file is used.

People who can write to a project can write its configuration. So until the user has trusted exactly this content, a
file may suggest how an agent answers, but not run anything, choose the model, send anything elsewhere, allow more,
raise a limit, or read outside its folder.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from perdure._context.role import Role
from perdure._core.run.stop import Limits
from perdure._io.files.confined_folder import ConfinedFolder, FileRefused
from perdure._io.files.sensitive import SENSITIVE_NAMES

from .lines import ValuePath
from .tables import ConfigFile

Restriction: TypeAlias = tuple[ValuePath, str]
"""Path of a setting that needs trust, and the effect that the setting would have."""


def list_restricted_settings(file: ConfigFile, folder: str) -> Iterator[Restriction]:
    """Yield the settings of a `perdure.toml` that need the user's trust, each with the reason, such as `imports code`.

    Such settings run code, send data to another place, allow more, hand out secrets, or name files outside `folder`.
    """
    named_skills = not isinstance(file.skills, bool) and bool(file.skills)
    summary_model = "" if file.compaction is None else file.compaction.model
    found: dict[ValuePath, tuple[object, str]] = {
        ("tools",): (file.tools, "imports code"),
        ("extensions", "imports"): (file.extensions.imports, "imports code"),
        ("mcp", "servers"): (file.mcp.servers, _CONNECTS),
        ("mcp", "files"): (file.mcp.files, _CONNECTS),
        ("store",): (file.store not in {"", "memory:"}, "decides where conversations are kept"),
        ("base_url",): (file.base_url, "sends conversations, and the key, to another address"),
        ("model",): (file.model, _describe_model(file.model)),
        ("compaction", "model"): (summary_model, _describe_model(summary_model)),
        ("engine",): (file.engine not in {"", "react"}, "decides how often the model is asked, and when it stops"),
        ("settings", "extra_body"): (file.settings.extra_body, "adds unchecked fields to requests"),
        ("permissions", "allow"): (file.permissions and file.permissions.allow, "allows calls without a question"),
        ("memory",): (file.memory is not None, "reads and changes what was remembered elsewhere"),
        ("vault",): (file.vault is not None, "hands out secrets"),
        ("skills",): (named_skills, "trusts skills"),
        ("schedule",): (file.schedule, "runs prompts that nobody has typed"),
    }
    yield from [(path, what) for path, (said, what) in found.items() if said]
    yield from _list_outside_paths(file, folder)


_CONNECTS = "starts programs or connects to servers"


def _describe_model(model: str) -> str:
    if has_url(model):
        return "sends conversations to another address"
    if model.partition(":")[0] == "local":
        return "loads a model from a file"
    return "chooses the model, and who is paid for it"


def _list_outside_paths(file: ConfigFile, folder: str) -> Iterator[Restriction]:
    paths: dict[ValuePath, str] = {
        ("instructions_file",): file.instructions_file,
        ("prompts", "directory"): "" if file.prompts is None else file.prompts.directory,
        ("roles",): file.roles,
        ("workdir",): file.workdir,
    }
    root = ConfinedFolder(folder, blocked=SENSITIVE_NAMES)
    for path, named in paths.items():
        if not named:
            continue
        is_folder = path != ("instructions_file",)
        try:
            root.resolve(os.path.expanduser(named), is_folder=is_folder)  # noqa: PTH111
        except FileRefused as reason:
            yield path, f"reads what lies outside the folder of the file, or may contain secrets ({reason})"


def has_url(model: str) -> bool:
    """Return True if a model name contains a URL, so that conversations would be sent there."""
    return "://" in model


def list_roles_that_need_trust(roles: Iterable[Role]) -> list[Role]:
    """Return the roles that need the user's trust, since they choose a model."""
    return [role for role in roles if role.model]


# -- limits ------------------------------------------------------------------------------------------------------------

DEFAULT_LIMITS: Final = Limits()
"""Limits that a file without trust can lower, and not raise."""
_AMOUNTS: Final = tuple(name for name in Limits.__struct_fields__ if name not in {"allowed_tools", "widens"})


def list_raised_limits(limits: Limits, own: Limits = DEFAULT_LIMITS) -> list[str]:
    """Return the names of the run limits in a project's configuration that are higher than the user's own."""
    return [name for name in _AMOUNTS if getattr(limits, name) != _lower(getattr(limits, name), getattr(own, name))]


def tighten_limits(limits: Limits, own: Limits = DEFAULT_LIMITS) -> Limits:
    """Return the run limits of a project, each lowered to the user's own limit where that is stricter.

    A project can only ever tighten what a user set: `allowed_tools` are those that both allow.
    """
    lowered = {name: _lower(getattr(limits, name), getattr(own, name)) for name in _AMOUNTS}
    allowed = _intersect(limits.allowed_tools, own.allowed_tools)
    return replace(limits, **lowered, allowed_tools=allowed, widens=())


def _intersect(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple([name for name in one if name in other])


def _lower(one: Any, other: Any) -> Any:
    given = [each for each in (one, other) if each is not None]
    return min(given) if given else None
