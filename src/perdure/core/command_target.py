"""Commands as targets of tool calls: the words of one simple command, or a text that only a shell can interpret.

A command line is taken apart only if every POSIX shell would take it apart in the same way: plain words, and words in
quotes. Everything else (a pipe, a variable, a substitution, a redirection, a pattern, an assignment) leaves the command
without words. No pattern allows such a command, and one that denies cannot be ruled out.
"""

from collections.abc import Sequence

from msgspec import Struct

from .error import ConfigError
from .text_target import ArgumentTarget, escape_pattern, is_text_pattern_within, matches_text

_QUOTES = "'\""
_SPACES = " \t"
_SHELL_CHARACTERS = frozenset("|&;<>()$`\\*?[]{}!#~^\n\r")
_SHELL_IN_QUOTES = frozenset("$`\\!")  # inside double quotes; `!` in an interactive shell
_RESERVED = frozenset(
    {
        *("if", "then", "else", "elif", "fi", "case", "esac", "for"),
        *("select", "while", "until", "do", "done", "in", "function", "time"),
        *("coproc", "declare", "typeset", "local", "export", "readonly", "alias", "eval"),
        *("exec", "source", ".", ":", "command", "builtin", "trap"),
    }
)
_ANY_REST = "*"


class CommandTarget(Struct, frozen=True, tag_field="kind", tag="command"):
    """A command that a tool call runs: its words, or none if only a shell can tell what it does."""

    text: str
    """The command line, as the tool was given it."""
    argv: tuple[str, ...] = ()
    """The words of the command; empty if it is not one simple command. Run these, without a shell."""

    @classmethod
    def of(cls, command: str | Sequence[str]) -> "CommandTarget":
        """Parse a command line; a list of words is used as it is. Raises `ValueError` if there is no command."""
        if isinstance(command, str):
            if not command.strip():
                raise ValueError("the command is empty")
            return cls(command, split_command(command) or ())
        words = tuple(command)
        if not words or not words[0] or not all(isinstance(each, str) and "\0" not in each for each in words):
            raise ValueError(f"{command!r} is not a list of words")
        return cls(quote_words(words), words)

    @classmethod
    def of_argument(cls, name: str) -> "ArgumentTarget[CommandTarget]":
        """Return a function for `@tool(target=…)` that parses the argument of this name: text or a list of words."""
        return ArgumentTarget(name, cls.of)

    def __str__(self) -> str:
        return self.text


class CommandPattern(Struct, frozen=True, tag_field="kind", tag="command"):
    """A pattern for commands: the first words, each with wildcards; more words may follow."""

    pattern: str

    def __post_init__(self) -> None:
        if not self.words:
            message = f"command({self.pattern!r}): give the first words of a command, such as 'git status'"
            raise ConfigError(message)

    def __str__(self) -> str:
        return f"command({self.pattern!r})"

    @property
    def text(self) -> str:
        """The pattern as text."""
        return self.pattern

    @property
    def words(self) -> tuple[str, ...]:
        """The patterns of the first words. A last word `*` stands for any further words, also for none."""
        words = split_pattern(self.pattern)
        return words[:-1] if len(words) > 1 and words[-1] == _ANY_REST else words

    def allows(self, target: CommandTarget) -> bool:
        """Return True if the command has words, and they begin with those of the pattern."""
        words = self.words
        return len(target.argv) >= len(words) and all(map(matches_text, target.argv, words))

    def may_match(self, target: CommandTarget) -> bool:
        """Return True if the command begins with these words, in any case, and with any folder before the first.

        Of a text that only a shell can interpret, each part may begin with them.
        """
        words = [each.casefold() for each in self.words]
        if target.argv:
            return _begins_with([each.casefold() for each in target.argv], words)
        mentioned = split_roughly(target.text.casefold())
        return any(_begins_with(mentioned[place:], words) for place in range(len(mentioned)))

    def might_match(self, target: CommandTarget) -> bool:
        """Return True if it cannot be ruled out that this command runs, because a shell or another command runs it."""
        if not target.argv:
            return True
        first = self.words[0].casefold()
        mentioned = [base_name(word) for each in target.argv for word in split_roughly(each)]
        return any(matches_text(word.casefold(), first) for word in mentioned)

    def is_within(self, other: "CommandPattern") -> bool:
        """Return True if it is certain that every command which matches this pattern matches the other."""
        narrow, wide = self.words, other.words
        return len(narrow) >= len(wide) and all(map(is_text_pattern_within, narrow, wide))


def _begins_with(given: Sequence[str], words: Sequence[str]) -> bool:
    if len(given) < len(words):
        return False
    first = matches_text(given[0], words[0]) or matches_text(base_name(given[0]), words[0])
    return first and all(map(matches_text, given[1:], words[1:]))


def split_command(command: str) -> tuple[str, ...] | None:
    """Return the words of one simple command, or `None` if a shell would do more than split it."""
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    for character in command.strip(_SPACES):
        if not character.isprintable() and character not in _SPACES:
            return None  # control characters, other spaces and line ends, invisible characters
        if quote:
            if character == quote:
                quote = ""
            elif quote == '"' and character in _SHELL_IN_QUOTES:
                return None
            else:
                word = word or []
                word.append(character)
        elif character in _QUOTES:
            quote, word = character, word or []
        elif character in _SPACES:
            if word is not None:
                words.append("".join(word))
            word = None
        elif character in _SHELL_CHARACTERS:
            return None
        else:
            word = word or []
            word.append(character)
    if quote or word is None:
        return None
    words.append("".join(word))
    return tuple(words) if _is_simple(words[0]) else None


def _is_simple(first: str) -> bool:
    """Return True if the first word names a program: it is no assignment, and no word that the shell interprets."""
    return bool(first) and "=" not in first and first not in _RESERVED and not first.startswith("-")


def split_pattern(pattern: str) -> tuple[str, ...]:
    """Return the words of a pattern: separated by spaces, in quotes where a word contains one."""
    import shlex

    try:
        return tuple(shlex.split(pattern))
    except ValueError as error:
        message = f"command({pattern!r}): {error}"
        raise ConfigError(message) from None


def split_roughly(text: str) -> list[str]:
    """Return everything in a text that could be a word of a command, also within quotes and between operators."""
    import re

    return [each for each in re.split(r"[\s|&;<>()$`'\"\\{}=,:]+", text) if each]


def base_name(word: str) -> str:
    """Return the last part of a path."""
    return word.replace("\\", "/").rstrip("/").rpartition("/")[2]


def quote_words(words: Sequence[str]) -> str:
    """Return words as one command line that a shell splits into the same words."""
    import shlex

    return shlex.join(words)


def prefix_pattern(target: CommandTarget) -> CommandPattern | None:
    """Return the pattern for commands that begin like this one, with the program and its subcommand; `None` for none.

    A program without a subcommand gets no pattern: `rm` alone would cover every use of it.
    """
    words = target.argv[:2]
    if len(words) < 2 or not words[1].replace("-", "_").isidentifier() or words[1].startswith("-"):  # noqa: PLR2004
        return None
    return CommandPattern(quote_words([escape_pattern(each) for each in words]))
