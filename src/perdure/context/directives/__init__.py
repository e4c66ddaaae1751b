"""Handle directives in a user's message: `/command`, `/skill` and `@file`."""

from .apply import AppliedDirectives, apply_directives
from .command import Command, CommandContext, CommandFailed, Rewrite, SessionControls, ShortCircuit, index_commands
from .file_mentions import Mentions

__all__ = [
    "AppliedDirectives",
    "Command",
    "CommandContext",
    "CommandFailed",
    "Mentions",
    "Rewrite",
    "SessionControls",
    "ShortCircuit",
    "apply_directives",
    "index_commands",
]
