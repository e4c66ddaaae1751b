"""Handle directives in a user's message: `/command`, `/skill` and `@file`."""

from .apply import AppliedDirectives, apply_directives
from .commands import (
    Command,
    CommandContext,
    CommandFailed,
    Rewrite,
    SessionControls,
    ShortCircuit,
    index_commands,
)
from .mentions import MentionSettings

__all__ = [
    "AppliedDirectives",
    "Command",
    "CommandContext",
    "CommandFailed",
    "MentionSettings",
    "Rewrite",
    "SessionControls",
    "ShortCircuit",
    "apply_directives",
    "index_commands",
]
