"""Recognize simple commands that only read files of a folder, by a table of programs and options.

Options are listed, not excluded: one that the table does not have, also an abbreviation, means that the command is
asked about. So are operands outside the folder, links that lead out of it, and names that often mean secrets.
"""

# ruff: noqa: PTH118 - a word may have any form, and pathlib changes some of them
import os
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from perdure._core.permission.targets.command import CommandPart
from perdure._io.files.sensitive import SENSITIVE_NAMES, find_blocking_pattern, has_no_secrets, take_last_name

from .backend import ReadInspectingShellBackend


class _Program(Struct, frozen=True, kw_only=True):
    """The options with which a program only reads."""

    flags: str = ""
    """Letters of options without a value, as in `-la`."""
    valued: str = ""
    """Letters of options with a value, as in `-n 5` or `-n5`."""
    long: frozenset[str] = frozenset()
    """Long options, written out; each may have a value after `=`."""
    long_valued: frozenset[str] = frozenset()
    """Those whose value may be the next word, of a program that reads the whole folder when it is given no file."""
    words: frozenset[str] = frozenset()
    """Words that begin with a dash and are no bundle of letters, such as `-name`."""
    operands: int = 10_000
    """The most operands that it may have; a further one might be a file that is written."""
    has_pattern: bool = False
    """True if the first operand is a pattern, and no file."""
    has_number: bool = False
    """True if `-5` is an option."""
    has_files: bool = True
    """False if its operands are text alone."""
    operand_start: str = ""
    """How every operand must begin."""
    shows_names: bool = False
    """True if it shows names and sizes of files, and nothing of their contents."""
    recursive: str = ""
    """Letters of options that make it read whole folders; `*` if it always does, `/` if it does for any folder."""
    starts_here: bool = False
    """True if it reads the folder that it runs in when it is given no file."""


def _long(options: str) -> frozenset[str]:
    return frozenset([f"--{each}" for each in options.split()])


_GIT_DIFF: Final = _long(
    "abbrev abbrev-commit after all author before branches cached color committer date decorate diff-filter dirstat"
    " find-renames first-parent follow format full-index function-context graph grep histogram ignore-all-space"
    " ignore-blank-lines ignore-space-change invert-grep max-count merges minimal name-only name-status no-abbrev"
    " no-color no-decorate no-merges no-patch no-renames numstat oneline patch patch-with-stat patience pretty raw"
    " reverse shortstat since skip stat staged summary tags topo-order unified until word-diff"
)
_GIT: Final[Mapping[str, _Program]] = {
    "blame": _Program(flags="swlefntcM", valued="L", long=_long("date porcelain show-email root")),
    "branch": _Program(flags="arv", long=_long("all remotes list verbose show-current no-color color"), operands=0),
    "cat-file": _Program(flags="ptes"),
    "count-objects": _Program(flags="vH", operands=0),
    "describe": _Program(long=_long("tags always dirty abbrev long all contains")),
    "diff": _Program(flags="pwbMRsz", valued="USG", long=_GIT_DIFF),
    "log": _Program(flags="pwbMzis", valued="nUSGL", long=_GIT_DIFF, has_number=True),
    "ls-files": _Program(flags="cdmostkuz", long=_long("cached others modified deleted exclude-standard stage eol")),
    "ls-tree": _Program(flags="drtlz", long=_long("name-only long full-tree full-name abbrev")),
    "merge-base": _Program(flags="a", long=_long("all is-ancestor fork-point octopus")),
    "name-rev": _Program(long=_long("name-only tags")),
    "reflog": _Program(operands=0),
    "remote": _Program(flags="v", operands=0),
    "rev-list": _Program(valued="n", long=_GIT_DIFF | _long("count"), has_number=True),
    "rev-parse": _Program(
        flags="q",
        long=_long("show-toplevel abbrev-ref short verify is-inside-work-tree git-dir show-prefix show-cdup quiet"),
    ),
    "shortlog": _Program(flags="sne", long=_long("summary numbered email since until author")),
    "show": _Program(flags="pwbMsz", valued="USG", long=_GIT_DIFF),
    "show-ref": _Program(flags="sd", long=_long("heads tags hash head")),
    "status": _Program(
        flags="sbvz", valued="u", long=_long("short branch porcelain long verbose ignored untracked-files no-renames")
    ),
}
_GIT_PHRASES: Final = frozenset({("stash", "list"), ("worktree", "list"), ("tag",), ("tag", "-l"), ("tag", "--list")})
_FIND_TESTS: Final = frozenset(
    {
        *("-name", "-iname", "-path", "-ipath", "-type", "-maxdepth", "-mindepth", "-size", "-mtime", "-mmin"),
        *("-newer", "-not", "-o", "-a", "-and", "-or", "-print", "-print0", "-empty", "-prune", "-regex", "-iregex"),
        *("-perm", "-user", "-group", "-links", "-inum", "-depth", "-xdev", "-mount", "-follow", "-readable"),
        *("-writable", "-executable", "-atime", "-ctime", "-amin", "-cmin", "-samefile", "-L", "-P", "-H", "-true"),
    }
)
_GREP: Final = _Program(
    flags="EFGPivwxcLlqosnHhrRTUZzaIyb",
    valued="efmABC",
    long=_long(
        "after-context basic-regexp before-context color colour context count exclude exclude-dir extended-regexp"
        " files-with-matches files-without-match fixed-strings ignore-case include initial-tab invert-match line-number"
        " line-regexp max-count no-filename no-messages null only-matching perl-regexp quiet recursive regexp text"
        " with-filename word-regexp"
    ),
    long_valued=_long("after-context before-context context exclude exclude-dir include max-count regexp"),
    has_pattern=True,
    has_number=True,
    recursive="rR",
)
_TEST_OPERATORS: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})
_SUMS: Final = _Program(flags="btwz", long=_long("quiet status tag text binary zero"))
_PROGRAMS: Final[Mapping[str, _Program]] = {
    "basename": _Program(flags="az", valued="s", shows_names=True),
    "cat": _Program(
        flags="AbeEnstTuv", long=_long("number number-nonblank show-all show-ends show-tabs squeeze-blank")
    ),
    "cksum": _SUMS,
    "cmp": _Program(flags="bls", valued="n"),
    "comm": _Program(flags="123z"),
    "cut": _Program(flags="nsz", valued="bcdf", long=_long("delimiter fields characters bytes complement")),
    "date": _Program(
        flags="uR", valued="I", long=_long("utc iso-8601 rfc-3339"), has_files=False, operands=1, operand_start="+"
    ),
    "df": _Program(flags="ahHiklmT", shows_names=True),
    "diff": _Program(
        flags="abBcdEeiNnpqrstTuwyZ",
        valued="UCx",
        long=_long("brief color context exclude ignore-all-space ignore-case recursive side-by-side unified"),
        recursive="/",
    ),
    "dirname": _Program(flags="z", shows_names=True),
    "du": _Program(
        flags="abchHkLmsSx0",
        valued="dt",
        long=_long("human-readable max-depth summarize total apparent-size all"),
        shows_names=True,
        recursive="*",
        starts_here=True,
    ),
    "echo": _Program(flags="neE", has_files=False),
    "egrep": _GREP,
    "expr": _Program(has_files=False),
    "false": _Program(),
    "fgrep": _GREP,
    "file": _Program(flags="biLh", long=_long("brief mime mime-type"), shows_names=True),
    "find": _Program(words=_FIND_TESTS, shows_names=True, recursive="*", starts_here=True),
    "fold": _Program(flags="bs", valued="w"),
    "grep": _GREP,
    "groups": _Program(operands=0),
    "head": _Program(flags="qvz", valued="nc", long=_long("lines bytes quiet verbose"), has_number=True),
    "id": _Program(flags="ugGnr", operands=0),
    "ls": _Program(
        flags="aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
        valued="Iw",
        long=_long(
            "all almost-all classify color directory full-time group-directories-first hide human-readable ignore inode"
            " no-group numeric-uid-gid recursive reverse si size sort time time-style"
        ),
        shows_names=True,
        recursive="R",
        starts_here=True,
    ),
    "md5sum": _SUMS,
    "nl": _Program(valued="bdfhilnsvw"),
    "paste": _Program(flags="sz", valued="d"),
    "printf": _Program(has_files=False),
    "pwd": _Program(flags="LP", operands=0),
    "readlink": _Program(flags="efmnqsvz", shows_names=True),
    "realpath": _Program(
        flags="eLmPqsz", long=_long("relative-to relative-base canonicalize-existing"), shows_names=True
    ),
    "rev": _Program(),
    "rg": _Program(
        flags="ivwxcloLnNHhFPsSUaqup0",
        valued="efgtTABCmdM",
        long=_long(
            "after-context before-context color column context count count-matches files files-with-matches "
            "fixed-strings glob heading hidden iglob ignore-case invert-match json line-number max-columns "
            "max-count max-depth multiline no-filename no-heading no-ignore no-line-number no-messages "
            "only-matching pcre2 pretty quiet regexp smart-case sort stats trim type type-not vimgrep "
            "with-filename word-regexp "
        ),
        long_valued=_long(
            "after-context before-context color context glob iglob max-columns max-count max-depth regexp sort type"
            " type-not"
        ),
        has_pattern=True,
        recursive="*",
        starts_here=True,
    ),
    "seq": _Program(flags="w", valued="sf"),
    "sha1sum": _SUMS,
    "sha256sum": _SUMS,
    "sha512sum": _SUMS,
    "sort": _Program(
        flags="bdfghiMnrRsuVcCmz", valued="kt", long=_long("key field-separator numeric-sort reverse unique")
    ),
    "stat": _Program(flags="Lft", valued="c", long=_long("format printf terse dereference"), shows_names=True),
    "tac": _Program(flags="br", valued="s"),
    "tail": _Program(flags="qvz", valued="nc", long=_long("lines bytes quiet verbose"), has_number=True),
    "test": _Program(flags="abcdefghkprstuwxzLSONG", words=_TEST_OPERATORS, shows_names=True),
    "tr": _Program(flags="cCdst", has_files=False, operands=2),
    "tree": _Program(
        flags="adfhipsugDFNC",
        valued="LPI",
        long=_long("dirsfirst noreport"),
        shows_names=True,
        recursive="*",
        starts_here=True,
    ),
    "true": _Program(),
    "uname": _Program(flags="asnrvmpio", operands=0),
    "uniq": _Program(flags="cdDiuz", valued="fsw", long=_long("count repeated unique ignore-case"), operands=1),
    "wc": _Program(flags="clLmw", long=_long("lines words bytes chars")),
    "which": _Program(flags="a", shows_names=True),
    "whoami": _Program(operands=0),
}
_WITH_VERSION: Final = frozenset({"bash", "gcc", "git", "make", "node", "python", "python3", "rg"})
"""Programs whose `--version` neither reads nor runs anything of a project."""
_STANDARD_INPUT: Final = "-"
_NULL_DEVICE: Final = "/dev/null"


_SECTIONS: Final = re.compile(r"[=:,]")
_GIT_FORMATS: Final = _long("stat shortstat numstat name-only name-status no-patch summary dirstat raw")
"""Options of `git diff` and `git show` that replace the contents by a list."""
_GIT_PATCHES: Final = _long("patch patch-with-stat unified word-diff function-context verbose")
_GIT_WITHOUT_CONTENTS: Final = frozenset(
    {
        *(
            "add",
            "branch",
            "checkout",
            "cherry-pick",
            "clean",
            "clone",
            "commit",
            "fetch",
            "init",
            "merge",
            "mv",
            "pull",
        ),
        *("push", "rebase", "remote", "reset", "restore", "revert", "rm", "switch", "tag", "worktree"),
    }
)
"""Subcommands that do not show what is in files, unless they are asked to by an option."""
_GIT_SHOWING: Final = re.compile(r"-[a-zA-Z]*[pvi][a-zA-Z]*|--(?:patch|verbose|interactive|dry-run)\b.*")
_GIT_TYPES: Final = frozenset({"blob", "commit", "tag", "tree"})
_STAGE: Final = re.compile(r"[0-3]:")
"""The stage of an entry of the index, as in `:0:src/x.py`."""
_LINK_LETTERS: Final = {"du": "L", "egrep": "R", "fgrep": "R", "grep": "R", "ls": "L", "rg": "L"}
"""The letter of the option with which a program follows links below a folder."""
MOST_READ: Final = 2_000
"""The most files that a command is known to read; of one that reads more, only its folder is known."""


class ReadingRules(Struct, frozen=True, kw_only=True):
    """Facts about a shell backend that decide which of its commands only read, such as the folders they may read."""

    root: str
    """The working folder."""
    readable: tuple[str, ...] = ()
    """Further folders that may be read unasked."""
    insight: ReadInspectingShellBackend | None = None
    """Tells what commands can see; without it, more is asked about."""


class _Place(Struct):
    """The folders that a command may run in, and those below which it may read."""

    folders: list[str]
    roots: tuple[str, ...]
    rules: ReadingRules

    @property
    def has_moved(self) -> bool:
        """True after a `cd`."""
        return len(self.folders) > 1


class _Words(Struct):
    """The arguments of a command, told apart."""

    operands: list[str]
    """What is no option: files, but for a pattern in front."""
    values: list[str]
    """Values of options."""
    letters: str
    """Letters of options."""
    options: list[str]
    """The options themselves, with their values."""
    after_dashes: list[str]
    """The operands after `--`."""
    has_pattern: bool
    """True if the first operand is a pattern."""


def explain_reading(commands: Sequence[tuple[str, ...]], rules: ReadingRules) -> list[CommandPart]:
    """Return each command with the reason why it only reads files below a folder (empty if not) and the paths it shows.

    After a `cd`, which may have had no effect, operands must lie below the folder wherever the command runs.
    """
    start = os.path.realpath(rules.root)
    place = _Place([start], (start, *map(os.path.realpath, rules.readable)), rules)
    parts: list[CommandPart] = []
    for words in commands:
        if _is_plain_cd(words) and _is_below(words[1], place):
            place.folders += [os.path.realpath(os.path.join(each, words[1])) for each in place.folders]
            parts.append(CommandPart(words, f"cd goes to a folder below {rules.root}", ()))
        else:
            is_silent, reads = _find_reads(words, place)
            parts.append(CommandPart(words, f"{_name_command(words)} only reads" if is_silent else "", reads))
    return parts


def _is_plain_cd(words: Sequence[str]) -> bool:
    """Return True if a command is `cd` with a folder that the shell takes for the same as the kernel.

    After a link, `..` is another folder to the kernel than to bash, which only cuts off the last name.
    """
    return words[0] == "cd" and len(words) == 2 and ".." not in words[1].split("/")  # noqa: PLR2004 - cd and a folder


def _name_command(words: Sequence[str]) -> str:
    return " ".join(words[:2]) if words[0] == "git" else words[0]


def _find_reads(words: Sequence[str], place: _Place) -> tuple[bool, tuple[str, ...] | None]:
    """Return whether a command only reads what anybody may see, and the paths that it can show, if they are known."""
    name, rest = words[0], words[1:]
    if name in _WITH_VERSION and tuple(rest) == ("--version",):
        return True, ()
    if name == "git":
        return _find_git_reads(rest, place)
    program = _PROGRAMS.get(name)
    if program is None:
        return False, None
    parsed = _parse_words(program, rest)
    if parsed is None or not _is_allowed(program, parsed, place):
        return False, _everything(place)
    files = parsed.operands[parsed.has_pattern :] if program.has_files else []
    is_recursive = _is_recursive(program, parsed, files, place)
    if name == "find":
        files = _list_starting_points(rest)
    if not files and (program.starts_here or (is_recursive and program.recursive != "/")):
        files = ["."]
    reads = _resolve_files(files, place, is_recursive=is_recursive)
    reads += _resolve_files([*filter(None, parsed.values)], place, is_recursive=False)
    if not is_recursive or (program.shows_names and not _follows_links(name, parsed)):
        return True, reads
    return _has_no_secrets(name, parsed, reads, place), reads


def _list_starting_points(rest: Sequence[str]) -> list[str]:
    """Return the files and folders that `find` begins at: the words before its first test."""
    words = [*rest]
    while words and words[0] in {"-L", "-P", "-H"}:
        words.pop(0)
    first_test = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    return words[:first_test]


def _everything(place: _Place) -> tuple[str, ...]:
    """Return the paths that stand for all files below the working folder."""
    return (f"{place.roots[0]}/",)


def _is_recursive(program: _Program, parsed: _Words, files: Sequence[str], place: _Place) -> bool:
    if program.recursive == "/":
        return any(os.path.isdir(os.path.join(folder, each)) for folder in place.folders for each in files)  # noqa: PTH112
    has_letter = any(each in program.recursive for each in parsed.letters)
    return program.recursive == "*" or has_letter or (bool(program.recursive) and "--recursive" in parsed.options)


def _resolve_files(files: Sequence[str], place: _Place, *, is_recursive: bool) -> tuple[str, ...]:
    """Return the real paths that arguments may lead to; with a slash behind those that are read with all below them."""
    found = [os.path.realpath(os.path.join(folder, each)) for folder in place.folders for each in files]
    marked = [f"{each}/" if is_recursive and os.path.isdir(each) else each for each in found]  # noqa: PTH112
    return tuple(dict.fromkeys([each for each in marked if each != _NULL_DEVICE]))


def _has_no_secrets(name: str, parsed: _Words, reads: Sequence[str], place: _Place) -> bool:
    """Return True if no file whose name means secrets is below the folders that a command reads and can see."""
    insight = place.rules.insight
    if _scan_folders(name, parsed, reads, place, ()):
        return True
    return insight is not None and _scan_folders(name, parsed, reads, place, insight.list_hidden_paths())


def _scan_folders(
    name: str, parsed: _Words, reads: Sequence[str], place: _Place, hidden_paths: Collection[str]
) -> bool:
    is_ripgrep, start = name == "rg", place.roots[0]
    skipped = [each.partition("=")[2] for each in parsed.options if each.startswith("--exclude-dir=")]
    return all(
        has_no_secrets(
            each.rstrip("/"),
            os.path.relpath(each, start).split("/") if each.rstrip("/") != start else (),
            hidden_paths=hidden_paths,
            skipped_names=[] if is_ripgrep else skipped,
            shown_patterns=_list_shown_patterns(parsed) if is_ripgrep else None,
            follows_links=_follows_links(name, parsed),
        )
        for each in reads
        if each.endswith("/")
    )


def _list_shown_patterns(parsed: _Words) -> list[str] | None:
    """Return the patterns by which the options of ripgrep bring names that begin with a dot; `None` if all are."""
    if "u" in parsed.letters or "--hidden" in parsed.options:
        return None
    found: list[str] = []
    for word, following in pairwise([*parsed.options, ""]):
        name, is_joined, value = word.partition("=")
        if name in {"--glob", "--iglob"}:
            found.append(value if is_joined else following)
        elif not word.startswith("--") and "g" in word:
            found.append(word.partition("g")[2] or following)
    return [take_last_name(each) for each in found if not each.startswith("!")]


def _follows_links(name: str, parsed: _Words) -> bool:
    """Return True if a command that reads whole folders reads what links in them lead to."""
    if name == "find":
        return any(each in {"-L", "-follow"} for each in parsed.options)
    return name == "diff" or _LINK_LETTERS.get(name, "/") in parsed.letters


def _find_git_reads(rest: Sequence[str], place: _Place) -> tuple[bool, tuple[str, ...] | None]:
    if rest and rest[0] == "--no-pager":
        rest = rest[1:]
    if tuple(rest) in _GIT_PHRASES:
        return not place.has_moved, ()
    command = rest[0] if rest else ""
    unknown = None if _is_without_contents(rest) else _everything(place)
    program = _GIT.get(command)
    parsed = None if program is None or place.has_moved else _parse_words(program, rest[1:])
    if program is None or parsed is None or not _is_allowed(program, parsed, place):
        return False, unknown
    if command == "blame":
        return True, _resolve_files(parsed.operands, place, is_recursive=False)
    if any(each in "SG" for each in parsed.letters):  # finds a text in contents that it does not show
        return False, _everything(place)
    if not _shows_git_contents(command, parsed):
        return True, ()
    paths = _list_git_reads(command, parsed, place)
    if paths is None:
        return False, unknown
    is_open = not any(find_blocking_pattern(each.split("/"), SENSITIVE_NAMES) for each in paths)
    if len(paths) > MOST_READ:
        return is_open, unknown
    as_named = [os.path.normpath(os.path.join(place.roots[0], each)) for each in paths]  # a link may be there now
    return is_open, tuple(dict.fromkeys([*as_named, *_resolve_files(paths, place, is_recursive=False)]))


def _is_without_contents(rest: Sequence[str]) -> bool:
    """Return True if a git command that is not known to only read shows nothing of the contents of files either."""
    return bool(rest) and rest[0] in _GIT_WITHOUT_CONTENTS and not any(map(_GIT_SHOWING.fullmatch, rest[1:]))


def _shows_git_contents(command: str, parsed: _Words) -> bool:
    """Return True if a git command shows what is in files, and not only names, messages and numbers."""
    names = {each.partition("=")[0] for each in parsed.options}
    if command == "cat-file":  # -p, or the type of the object
        return not any(each in "tes" for each in parsed.letters)
    if command in {"branch", "count-objects", "remote"}:
        return False
    if names & _GIT_PATCHES or any(each in "pULv" for each in parsed.letters):
        return True
    return command in {"diff", "show"} and not names & _GIT_FORMATS and "s" not in parsed.letters


def _list_git_reads(command: str, parsed: _Words, place: _Place) -> list[str] | None:
    """Return the paths, below the working folder, of all files that a git command shows; `None` if they are unknown."""
    before = parsed.operands[: len(parsed.operands) - len(parsed.after_dashes)]
    named = [_STAGE.sub("", each.partition(":")[2]) for each in before if ":" in each]
    if named and command in {"show", "cat-file"}:  # a file at a revision, as in HEAD:src/x.py
        is_top = os.path.lexists(os.path.join(place.roots[0], ".git"))  # else the path is of another folder
        words = [each for each in parsed.operands if command != "cat-file" or each not in _GIT_TYPES]
        is_known = is_top and len(named) == len(words) and all(each and each[0] != "/" for each in named)
        return named if is_known else None
    if command not in {"diff", "show", "log"} or named or place.rules.insight is None:
        return None
    listed = place.rules.insight.list_git_paths(command, parsed.options, before, parsed.after_dashes)
    return None if listed is None else [*listed]


def _parse_words(program: _Program, rest: Sequence[str]) -> _Words | None:
    """Tell the arguments of a program apart; `None` if it has an option that is not known."""
    found = _Words([], [], "", [], [], program.has_pattern)
    is_value = False
    for place, word in enumerate(rest):
        if is_value:
            is_value = False
            found.values.append(word)
            found.options.append(word)
        elif not word.startswith("-") or word == _STANDARD_INPUT:
            found.operands.append(word)
        elif word == "--":
            found.after_dashes = [*rest[place + 1 :]]
            found.operands += found.after_dashes
            break
        elif (value := _match_option(program, word)) is None:
            return None
        else:
            is_value = word in program.long_valued or (value == "" and _takes_next(program, word))
            found.values.append(value)
            found.options.append(word)
            if not word.startswith("--") and word not in program.words:
                found.letters += word[1 : len(word) - len(value)]
            found.has_pattern = found.has_pattern and not _gives_pattern(program, word, value)
    return found


def _gives_pattern(program: _Program, word: str, value: str) -> bool:
    """Return True if an option has the pattern, or needs none, so that the first operand is a file."""
    if word.startswith("--"):
        return word.partition("=")[0] in {"--regexp", "--file", "--files"}
    letter = word[len(word) - len(value) - 1]  # the last one of a bundle, as in -ie PATTERN
    return letter in "ef" and letter in program.valued


def _is_allowed(program: _Program, parsed: _Words, place: _Place) -> bool:
    """Return True if a program may have so many operands, and each file is below the folder."""
    operands = parsed.operands
    if len(operands) > program.operands or not all(each.startswith(program.operand_start) for each in operands):
        return False
    files = operands[1:] if parsed.has_pattern else operands if program.has_files else []
    return all(_is_below(each, place) for each in [*files, *filter(None, parsed.values)])


def _match_option(program: _Program, word: str) -> str | None:
    """Return the value that is written within an option, or an empty text; `None` for an option that is not known."""
    if word in program.words or (program.has_number and word[1:].isdecimal()):
        return ""
    if word.startswith("--"):
        name, _, value = word.partition("=")
        return value if name in program.long else None
    for place, letter in enumerate(word[1:], 2):
        if letter in program.valued:
            return word[place:]
        if letter not in program.flags:
            return None
    return ""


def _takes_next(program: _Program, word: str) -> bool:
    """Return True if the value of an option is the next argument."""
    return not word.startswith("--") and word not in program.words and word[-1] in program.valued


def _is_below(word: str, place: _Place) -> bool:
    """Return True if an argument, taken as a path, lies below the roots wherever it starts, and names no secret."""
    if word in {_STANDARD_INPUT, _NULL_DEVICE}:
        return True
    pieces = [word, *_SECTIONS.split(word)]
    if any(find_blocking_pattern(each.split("/"), SENSITIVE_NAMES) for each in pieces if each):
        return False
    paths = [os.path.realpath(os.path.join(folder, each)) for folder in place.folders for each in pieces]
    return all(any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in place.roots) for path in paths)
