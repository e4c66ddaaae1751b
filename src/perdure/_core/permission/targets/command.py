"""Shell commands as targets of permission rules, and the patterns that match them.

A target has the words of one simple command, or text that only a shell can interpret.

A command line is taken apart only if every POSIX shell would take it apart in the same way: plain words, and words in
quotes. Everything else (a pipe, a variable, a substitution, a redirection, a pattern, an assignment) leaves the command
without words. No pattern allows such a command, and one that denies cannot be ruled out.
"""

from collections.abc import Sequence

from msgspec import Struct

from perdure._core.values.error import ConfigError

from .text import TargetFromArgument, escape_pattern, is_text_pattern_within, matches_text

NETWORK_ACTION = "network"
"""The action of a command that asks for the network: only a rule that names this action allows it."""
CONFIGURE_ACTION = "configure"
"""The action of one that asks to change files which other programs trust, such as AGENTS.md: the same holds."""
NAMED_ACTIONS = frozenset({NETWORK_ACTION, CONFIGURE_ACTION, f"{NETWORK_ACTION}+{CONFIGURE_ACTION}"})
"""Actions that are allowed by their name alone: not by `allow("*")`, nor by the name of a part of one."""
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
_SUBCOMMANDS = {
    "cargo": frozenset({"build", "check", "clippy", "doc", "fmt", "test", "tree"}),
    "git": frozenset(
        {
            *(
                "add",
                "blame",
                "branch",
                "checkout",
                "cherry-pick",
                "commit",
                "diff",
                "fetch",
                "init",
                "log",
                "merge",
                "mv",
            ),
            *(
                "pull",
                "push",
                "reset",
                "restore",
                "revert",
                "rm",
                "show",
                "stash",
                "status",
                "switch",
                "tag",
                "worktree",
            ),
        }
    ),
    "npm": frozenset({"audit", "ci", "ls", "outdated", "test"}),
    "pnpm": frozenset({"audit", "ls", "outdated", "test"}),
    "yarn": frozenset({"audit", "outdated", "test"}),
}
"""Programs whose second word says what they do, whatever follows, and those words."""
_SCRIPT_RUNNERS = frozenset({"npm", "pnpm", "yarn"})
_RUNNING = frozenset({"run", "run-script"})
"""Subcommands that run a script of the package, by the word that follows."""


class CommandPart(Struct, frozen=True, omit_defaults=True):
    """A single command of a command line such as `a && b`: its argv, and whether it only reads files, and which."""

    argv: tuple[str, ...]
    """The words of the command."""
    reads_only: str = ""
    """Why it needs no permission, such as "git status only reads"; empty if it does need it."""
    reads: tuple[str, ...] | None = None
    """The real paths of all files whose contents, and folders whose entries, it can show; None if that is not known.

    A path that ends with a slash stands for a folder with everything below it.
    """

    def __str__(self) -> str:
        return quote_words(self.argv)


class CommandTarget(Struct, frozen=True, tag_field="kind", tag="command"):
    """A shell command that a tool call runs: its words, or none if it is too complex to split into words."""

    text: str
    """The command line, as the tool was given it."""
    argv: tuple[str, ...] = ()
    """The words of the command; empty if it is not one simple command. Run these, without a shell."""
    parts: tuple[CommandPart, ...] = ()
    """Every simple command that a shell would run for this line, if a parser has proved that these are all.

    Each is then decided on its own. Empty if the tool has no such parser, or it could not prove it.
    """
    note: str = ""
    """What a person who is asked should know besides, such as that the command runs without a sandbox."""
    root: str = ""
    """The folder that the command runs in, and that relative patterns for paths begin at; empty if it is not known."""
    network: bool = False
    """True if this command can reach the network, which others of its tool cannot: see `NETWORK_ACTION`."""
    configures: bool = False
    """True if it can change files that other programs trust, which others cannot: see `CONFIGURE_ACTION`."""

    @classmethod
    def of(cls, command: str | Sequence[str]) -> "CommandTarget":
        """Make a target from a command line or a list of words. Raises `ValueError` if there is no command."""
        if isinstance(command, str):
            if not command.strip():
                raise ValueError("the command is empty")
            return cls(command, split_simple_command(command) or ())
        words = tuple(command)
        if not words or not words[0] or not all(isinstance(each, str) and "\0" not in each for each in words):
            raise ValueError(f"{command!r} is not a list of words")
        return cls(quote_words(words), words)

    @classmethod
    def of_argument(cls, name: str) -> "TargetFromArgument[CommandTarget]":
        """Return a function for `@tool(target=…)` that makes the target from the tool's argument of this name."""
        return TargetFromArgument(name, cls.of)

    @property
    def named_action(self) -> str:
        """The action for what the command asks for beyond what others of its tool can; empty if there is none."""
        asked = [CONFIGURE_ACTION] if self.configures else []
        return "+".join([NETWORK_ACTION, *asked] if self.network else asked)

    @property
    def reads_only(self) -> str:
        """The reason why the command needs no permission, if each part of it only reads; else empty."""
        reasons = [each.reads_only for each in self.parts]
        return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""

    def __str__(self) -> str:
        return self.text


class CommandPattern(Struct, frozen=True, tag_field="kind", tag="command"):
    """A pattern for shell commands: their first words, each with wildcards; further words may follow."""

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
        """The patterns of the first words of a command. A last `*` matches any further words, or none."""
        words = split_pattern(self.pattern)
        return words[:-1] if len(words) > 1 and words[-1] == _ANY_REST else words

    def allows(self, target: CommandTarget) -> bool:
        """Return True if the command has words, and they begin with those of the pattern.

        Of a line with several parts, every part that does not only read must begin with them.
        """
        if target.argv or not target.parts:
            return self._matches_words(target.argv)
        asking = [each for each in target.parts if not each.reads_only]
        return bool(asking) and all(self._matches_words(each.argv) for each in asking)

    def _matches_words(self, argv: Sequence[str]) -> bool:
        words = self.words
        return len(argv) >= len(words) and all(map(matches_text, argv, words))

    def may_match(self, target: CommandTarget) -> bool:
        """Return True if a denying rule matches: the command begins with the pattern's words, in any case and from any
        folder.

        Of a text that only a shell can interpret, each part may begin with them.
        """
        words = [each.casefold() for each in self.words]
        if proved := list_argvs(target):
            return any(_begins_with([each.casefold() for each in argv], words) for argv in proved)
        mentioned = list_possible_words(target.text.casefold())
        return any(_begins_with(mentioned[place:], words) for place in range(len(mentioned)))

    def might_match(self, target: CommandTarget) -> bool:
        """Return True if it cannot be ruled out that this command runs, because a shell or another command runs it."""
        proved = list_argvs(target)
        if not proved:
            return True
        first = self.words[0].casefold()
        mentioned = [base_name(word) for argv in proved for each in argv for word in list_possible_words(each)]
        return any(matches_text(word.casefold(), first) for word in mentioned)

    def is_within(self, other: "CommandPattern") -> bool:
        """Return True if it is certain that every command which matches this pattern matches the other."""
        narrow, wide = self.words, other.words
        return len(narrow) >= len(wide) and all(map(is_text_pattern_within, narrow, wide))


def list_argvs(target: CommandTarget) -> list[tuple[str, ...]]:
    """Return the argv of each single command that a command line runs; empty if the line could not be parsed."""
    return [target.argv] if target.argv else [each.argv for each in target.parts]


def _begins_with(given: Sequence[str], words: Sequence[str]) -> bool:
    if len(given) < len(words):
        return False
    first = matches_text(given[0], words[0]) or matches_text(base_name(given[0]), words[0])
    return first and all(map(matches_text, given[1:], words[1:]))


def split_simple_command(command: str) -> tuple[str, ...] | None:
    """Split one simple shell command into words; return `None` if a shell would do more than split it."""
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
        elif character in _SHELL_CHARACTERS and not (character == "~" and word and word[-1].isalnum()):
            return None  # within a word, as in HEAD~1, a tilde means nothing
        else:
            word = word or []
            word.append(character)
    if quote or word is None:
        return None
    words.append("".join(word))
    return tuple(words) if _is_simple(words[0]) else None


def _is_simple(first: str) -> bool:
    """Return True if the first word of a command names a program: it is no assignment and no shell keyword."""
    return bool(first) and "=" not in first and first not in _RESERVED and not first.startswith("-")


def split_pattern(pattern: str) -> tuple[str, ...]:
    """Split a command pattern into words: separated by spaces, in quotes where a word contains a space."""
    import shlex

    try:
        return tuple(shlex.split(pattern))
    except ValueError as error:
        message = f"command({pattern!r}): {error}"
        raise ConfigError(message) from None


def list_possible_words(text: str) -> list[str]:
    """Return every part of a shell command line that could be a word, also within quotes and between operators."""
    import re

    return [each for each in re.split(r"[\s|&;<>()$`'\"\\{}=,:]+", text) if each]


def base_name(word: str) -> str:
    """Return the last part of a file path, such as `git` of `/usr/bin/git`."""
    return word.replace("\\", "/").rstrip("/").rpartition("/")[2]


def quote_words(words: Sequence[str]) -> str:
    """Join the words of a command to one command line that a shell splits into the same words."""
    import shlex

    return shlex.join(words)


def build_subcommand_pattern(target: CommandTarget) -> CommandPattern | None:
    """Return a pattern for all commands with the same program and subcommand; `None` for those that do too many things.

    Only subcommands of a list are offered: behind `sudo rm`, `ssh host`, `docker run` or `find src` follows what is
    really done. A script of a package is offered by its name, as in `npm run build`. A line with several parts gets a
    pattern if all parts that do not only read begin alike.
    """
    asking = [target.argv] if target.argv else [each.argv for each in target.parts if not each.reads_only]
    beginnings = {_take_subcommand(each) for each in asking}
    words = beginnings.pop() if len(beginnings) == 1 else ()
    return CommandPattern(quote_words([escape_pattern(each) for each in words])) if words else None


def _take_subcommand(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the first words of a command that say what it does; none if they do not."""
    program, subcommand = argv[0], argv[1] if len(argv) > 1 else ""
    if subcommand in _SUBCOMMANDS.get(program, ()):
        return program, subcommand
    script = argv[2] if program in _SCRIPT_RUNNERS and subcommand in _RUNNING and len(argv) > 2 else ""  # noqa: PLR2004 - and a script
    is_name = bool(script) and all(each.isalnum() or each in "-_:." for each in script) and script[0].isalnum()
    return (program, subcommand, script) if is_name else ()
