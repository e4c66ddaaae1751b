"""Handle directives in a user's message: `/command`, `/skill` and `@file`."""

from .file_mentions import MentionSettings
from .slash_command import (
    Command,
    CommandContext,
    CommandFailed,
    Rewrite,
    SessionControls,
    ShortCircuit,
    index_commands,
)
from .user_message_directives import AppliedDirectives, apply_directives

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
