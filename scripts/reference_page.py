"""The parts that scripts/reference.py puts pages together from: what a page is, and the groups of `Agent`'s options."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Audience = Literal["users", "authors"]
"""Who a page is for: people who build agents, or people who write extensions, engines, models and stores."""


class Page(NamedTuple):
    """A page of the reference."""

    file: str
    title: str
    about: str
    names: tuple[str, ...]
    """What is documented here, and on no other page, in this order: each name with the module that defines it."""

    @property
    def audience(self) -> Audience:
        """Return who the page is for, by its folder."""
        return "authors" if self.file.startswith("extending/") else "users"


AUDIENCES: Mapping[Audience, tuple[str, str]] = {
    "users": ("For users", "To build agents, run them, and look after their sessions."),
    "authors": (
        "For authors of extensions",
        "To write an extension, an engine, a model, a store or a watcher. Most programs need none of these.",
    ),
}
"""The heading and the explanation of each half of the reference."""

OPTION_GROUPS: Mapping[str, Sequence[str]] = {
    "Model and instructions": ("model", "settings", "instructions", "role", "roles"),
    "Name": ("name", "description"),
    "Tools and permission": ("tools", "spare_tools", "extensions", "permission", "vault", "deps"),
    "Limits and checks": ("limits", "budget", "stop", "guardrails", "output_validators"),
    "What the model is sent": ("project", "skills", "commands", "mentions", "compaction", "history_processor"),
    "Sessions and events": ("store", "watchers"),
    "People": ("interactive", "answer_timeout_seconds", "steering_mode", "follow_up_mode"),
    "Other agents": ("handoffs", "narrow_handoffs"),
    "How runs work": ("engine", "middleware", "clock"),
}
"""The options of `Agent` by purpose. Each option is in exactly one group."""
