"""Split a command line into the simple commands that bash would run, for permission checks.

A line that cannot be split with certainty is not split at all.

Two parsers must agree: tree-sitter-bash gives the structure, and each simple command is split once more by
`split_simple_command`, which knows plain words and quotes alone. A line is proved only if it consists of simple
commands with literal words, joined by `;`, `&&`, `||`, `|` and line ends, with no redirection other than to `/dev/null`
and between the standard streams. Everything else (a variable, a substitution, a pattern, a here-document, an
assignment, a loop, a background job, a builtin that changes the shell) proves nothing, and the whole line has to be
asked about.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from perdure._core.permission.targets.command import split_simple_command

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_CHARACTERS: Final = 16_384
"""The longest command line that is taken apart."""
MAX_COMMANDS: Final = 40
"""The most simple commands that a line may have; one with more is asked about as a whole."""

_SEPARATORS: Final = frozenset({";", "\n", "&&", "||", "|"})
_CONTAINERS: Final = frozenset({"program", "list", "pipeline", "redirected_statement"})
_WORDS: Final = frozenset({"command_name", "word", "number", "raw_string", "string", "concatenation"})
_HARMLESS_REDIRECTION: Final = re.compile(r"[12]?>>?[ \t]*/dev/null|&>>?[ \t]*/dev/null|<[ \t]*/dev/null|[12]?>&[12]")
_BLANKS: Final = " \t\n"

_BUILTINS: Final = frozenset(
    {
        *(".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command", "compgen", "complete"),
        *("compopt", "continue", "declare", "dirs", "disown", "enable", "eval", "exec", "exit", "export", "fc", "fg"),
        *("getopts", "hash", "help", "history", "jobs", "kill", "let", "local", "logout", "mapfile", "popd", "printf"),
        *("pushd", "read", "readarray", "readonly", "return", "set", "shift", "shopt", "source", "suspend", "test"),
        *("times", "trap", "type", "typeset", "ulimit", "umask", "unalias", "unset", "wait", "coproc", "function"),
        *("time", "{", "}", "!", "[[", "]]", "in", "case", "esac", "select"),
    }
)
"""Words that bash itself interprets: in a line with several commands they may change what the others do.

`echo`, `false`, `pwd` and `true` change nothing, whatever their words.
"""


def split_command_line(text: str) -> list[tuple[str, ...]] | None:
    """Return the argv of each simple command that bash runs for a line; `None` if the line cannot be split safely.

    Without the package tree-sitter-bash only a line of one simple command is split.
    """
    if (words := split_simple_command(text)) is not None:
        return [words]
    if len(text) > MAX_CHARACTERS or not all(each.isprintable() or each in _BLANKS for each in text):
        return None
    parser = load_bash_parser()
    if parser is None:
        return None
    source = text.encode("utf-8", "surrogatepass")
    root = parser.parse(source).root_node
    if root.has_error:
        return None
    try:
        commands = list(_list_commands(root, source))
    except _UnprovedError:
        return None
    return commands if 0 < len(commands) <= MAX_COMMANDS and not _changes_shell(commands) else None


def has_parser() -> bool:
    """Return True if the packages of `perdure[shell]` are installed, without importing them."""
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in ("tree_sitter", "tree_sitter_bash"))


@cache
def load_bash_parser() -> "Parser | None":
    """Load tree-sitter's bash parser; `None` if the packages of `perdure[shell]` are not installed."""
    try:
        import tree_sitter_bash
        from tree_sitter import Language, Parser
    except ImportError:
        return None
    return Parser(Language(tree_sitter_bash.language()))


class _UnprovedError(Exception):
    """Raised for a part of a line that is not certainly a simple command."""


def _list_commands(node: "Node", source: bytes) -> Iterator[tuple[str, ...]]:
    """Yield the argv of each simple command below a node. Raises `_UnprovedError` for anything else."""
    _check_gaps(node, node.children, source)
    for child in node.children:
        if child.type == "command":
            yield _split_simple(child, source)
        elif child.type in _CONTAINERS:
            yield from _list_commands(child, source)
        elif child.type == "file_redirect" and node.type == "redirected_statement":
            _check_redirection(child, source)
        elif child.type not in _SEPARATORS:
            raise _UnprovedError


def _split_simple(command: "Node", source: bytes) -> tuple[str, ...]:
    """Return the argv of a simple command, if both parsers find the same."""
    if not all(each.type in _WORDS for each in command.children):
        raise _UnprovedError
    words = split_simple_command(_read(command, source))
    if words is None or [_read(each, source) for each in command.children if not _is_word(each, source)]:
        raise _UnprovedError
    if len(words) != len(command.children):
        raise _UnprovedError
    return words


def _is_word(node: "Node", source: bytes) -> bool:
    """Return True if the text of a node alone is a single argument, too."""
    alone = split_simple_command(f"x {_read(node, source)}")
    return alone is not None and len(alone) == 2  # noqa: PLR2004 - x and the word


def _check_redirection(node: "Node", source: bytes) -> None:
    if not _HARMLESS_REDIRECTION.fullmatch(_read(node, source)):
        raise _UnprovedError


def _check_gaps(parent: "Node", children: Sequence["Node"], source: bytes) -> None:
    """Raise `_UnprovedError` if there is more than blanks between the parts of a node."""
    at = parent.start_byte if parent.type != "program" else 0
    end = parent.end_byte if parent.type != "program" else len(source)
    for child in children:
        if source[at : child.start_byte].strip(b" \t\n"):
            raise _UnprovedError
        at = child.end_byte
    if source[at:end].strip(b" \t\n"):
        raise _UnprovedError


def _read(node: "Node", source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "surrogatepass")


def _changes_shell(commands: Sequence[tuple[str, ...]]) -> bool:
    """Return True if a command may change what the shell does with another, or evaluate its arguments once more."""
    return any(_may_change_shell(words) for words in commands)


def _may_change_shell(words: tuple[str, ...]) -> bool:
    name = words[0]
    if name == "cd":
        return not _is_plain_folder_change(words)
    if name in {"test", "printf"}:  # -v evaluates a subscript, with the substitutions in it
        return any(each.startswith("-") and ("v" in each or "R" in each) for each in words[1:])
    return name in _BUILTINS


def _is_plain_folder_change(words: tuple[str, ...]) -> bool:
    """Return True if `cd` gets one folder that is written out."""
    return len(words) == 2 and not words[1].startswith("-") and words[1] != ""  # noqa: PLR2004
