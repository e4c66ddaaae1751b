"""The agent of the command line: what a person, a project and its configuration make of it, put together in this one
place. Above: `run` and `resume` (`drive.py`), `replay`. Below: `perdure.config`, `surroundings.py`, `choice.py`.

What the person says counts first, then the person's environment, then the files of the project, then what is usual.
Nothing that lies in a project can stop a run: what cannot be used is told, and left out.
"""

import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.agent import Agent
from perdure.context.compaction import Compaction
from perdure.context.directives import Mentions
from perdure.context.role import Role
from perdure.core.permission import Gate, Handler, Permissions, allow, allow_all, later
from perdure.core.stop import Limits
from perdure.interaction.grant_file import GrantFile
from perdure.override import Overrides
from perdure.toolkits.basics import basics

from .choice import Choice, chosen, has_little_room
from .config_file import not_used, read_config
from .home import grants_file, store_spec
from .surroundings import more_tools, project_here, roles_here, skill_trust, skills_here, tried

if TYPE_CHECKING:
    from perdure.config import Config

    from .order import Order, Wish


class Equipment(Struct, frozen=True, kw_only=True, eq=False):
    """What the agent is made of."""

    choice: Choice
    """Who answers, and why."""
    parts: dict[str, Any]
    """What it has, by the names under which `Agent` takes it."""
    config: "Config | None" = None
    """The file that has a say in it."""
    warnings: tuple[str, ...] = ()
    """What somebody has to know, such as that a file is not used."""
    notes: tuple[str, ...] = ()
    """What else was found, and left out."""

    @property
    def store(self) -> str:
        """Where its sessions are kept."""
        store: str = self.parts["store"]
        return store

    def agent(self, **more: Any) -> Agent[Any]:
        """The agent, with whatever else it is to have."""
        return Agent(**{**self.parts, **more})

    def gate(self, handler: Handler | None, *, yes: bool = False, wait: bool = False) -> Gate:
        """Who decides about calls. What the file forbids is forbidden, even if everything else is allowed."""
        table = None if self.config is None else self.config.tables.permissions
        rules = () if table is None else table.rules
        if yes:
            denied = [rule for rule in rules if rule.policy == "deny"]
            return Permissions(*denied, allow()) if denied else allow_all
        waits = wait or (table is not None and table.otherwise == "later")
        return Permissions(
            *rules,
            handler=handler or (later if waits else None),
            grants=GrantFile(grants_file()),
            expires_seconds=None if table is None else table.expires_seconds,
        )

    def overrides(self, order: "Order") -> Overrides[Any]:
        """How a run differs from others: kept in the log, so that `resume` asks the same model in the same way."""
        given = Overrides[Any]()
        if isinstance(self.parts["model"], str):  # a model object has an address of its own, which the file has again
            given["model"] = self.choice.model
        if order.instructions is not None:
            given["instructions"] = order.instructions
        if order.wish.role:
            given["role"] = order.wish.role
        if order.max_turns is not None:
            given["limits"] = replace(self.parts.get("limits", Limits()), max_turns=order.max_turns)
        return given


def equip(wish: "Wish", workdir: str = os.curdir) -> Equipment:
    """Everything that the agent is to have, in this folder. Raises `ConfigError` for what the person got wrong."""
    config, problem = read_config(wish.config, workdir)
    if config is not None:
        from perdure.config import BadConfig

        try:
            return _equipped(wish, config, workdir)
        except BadConfig as error:
            if wish.config is not None or config.trusted:  # it is the person's own wish, and is not left out
                raise
            problem = not_used(config.path, error)
    return replace(_equipped(wish, None, workdir), warnings=(problem,) if problem else ())


def kept_in(wish: "Wish", workdir: str = os.curdir) -> str:
    """Where sessions are kept, before anything else is known."""
    return _store(wish, read_config(wish.config, workdir).config)


def _equipped(wish: "Wish", config: "Config | None", workdir: str) -> Equipment:
    here = workdir if config is None or ("workdir",) not in config.lines else config.workdir
    notes = _notes_on(config)
    roles, role = roles_here(wish, config, here, notes)
    choice = chosen(wish.model, _suggested(config, role))
    has_room = wish.config is not None or not has_little_room(wish.answered_by or choice.model)
    parts: dict[str, Any] = {
        "model": choice.model,
        "tools": () if _says(config, "tools") else basics(here),
        "compaction": Compaction(),
        "mentions": tried(lambda: Mentions(here), "files cannot be mentioned", notes),
        "project": project_here(here, notes) if _wanted("project", wish, config, otherwise=has_room) else None,
        "extensions": more_tools() if wish.context or (wish.context is None and has_room) else (),
    }
    if _wanted("skills", wish, config, otherwise=has_room):
        parts["skills"] = skills_here(here, notes)
    if config is not None:
        parts |= _from_file(wish, config, choice)
    parts |= {"roles": roles, "store": _store(wish, config)}
    return Equipment(choice=choice, parts=parts, config=config, notes=tuple(notes))


# -- what the file says ------------------------------------------------------------------------------------------------


def _says(config: "Config | None", name: str) -> bool:
    """Whether the file has a word for it, be it no."""
    return config is not None and (name,) in config.lines


def _wanted(name: str, wish: "Wish", config: "Config | None", *, otherwise: bool) -> bool:
    if wish.context is not None:
        return wish.context
    return bool(getattr(config.tables, name)) if config is not None and _says(config, name) else otherwise


def _from_file(wish: "Wish", config: "Config", choice: Choice) -> dict[str, Any]:
    """What the agent has from the file; the rest is decided elsewhere."""
    names = ["name", "description", "instructions", "limits", "settings", "role", "interactive"]
    names += [name for name in ("tools", "compaction", "extensions", "vault", "mentions") if _says(config, name)]
    names += ["model"] if choice == _named_in(config) else []
    if wish.context is not False and not isinstance(config.tables.skills, bool) and config.tables.skills:
        names.append("skills")
    parts = config.parts(names, trust=skill_trust())
    if not config.tables.base_url:  # then its name says it all, and a name can be kept in the log
        parts.pop("model", None)
    return parts


def _named_in(config: "Config") -> Choice:
    return Choice(config.tables.model, f"{config.path} names it")


def _suggested(config: "Config | None", role: Role | None) -> Choice | None:
    if role is not None and role.model:
        return Choice(role.model, f"role {role.name!r} names it")
    return _named_in(config) if config is not None and config.tables.model else None


def _store(wish: "Wish", config: "Config | None") -> str:
    if wish.store or config is None or not config.tables.store:
        return store_spec(wish.store)
    store: str = config.parts(["store"])["store"]
    return store


def _notes_on(config: "Config | None") -> list[str]:
    if config is None:
        return []
    told = "" if config.trusted else "; it is not trusted, and says nothing that it would have to be trusted for"
    notes = [f"{config.path} is used{told}", *config.problems]
    if any(each.tables for each in config.servers):
        notes.append(f"the servers that {config.path} names are not connected to: there is nothing yet that could")
    return notes
