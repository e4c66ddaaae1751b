"""Recognize simple commands that only read files of a folder, by a table of programs and options.

Options are listed, not excluded: one that the table does not have, also an abbreviation, means that the command is
asked about. So are operands outside the folder, links that lead out of it, and names that often mean secrets.
"""

# ruff: noqa: PTH118 - a word may have any form, and pathlib changes some of them
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from perdure.files.sensitive_names import SENSITIVE_NAMES, find_blocking_pattern


class _Program(Struct, frozen=True, kw_only=True):
    """The options with which a program only reads."""

    flags: str = ""
    """Letters of options without a value, as in `-la`."""
    valued: str = ""
    """Letters of options with a value, as in `-n 5` or `-n5`."""
    long: frozenset[str] = frozenset()
    """Long options, written out; each may have a value after `=`."""
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
    has_pattern=True,
    has_number=True,
)
_TEST_OPERATORS: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})
_SUMS: Final = _Program(flags="bctwz", long=_long("check quiet status tag text binary zero"))
_PROGRAMS: Final[Mapping[str, _Program]] = {
    "basename": _Program(flags="az", valued="s"),
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
    "df": _Program(flags="ahHiklmT"),
    "diff": _Program(
        flags="abBcdEeiNnpqrstTuwyZ",
        valued="UCx",
        long=_long("brief color context exclude ignore-all-space ignore-case recursive side-by-side unified"),
    ),
    "dirname": _Program(flags="z"),
    "du": _Program(
        flags="abchHkLmsSx0", valued="dt", long=_long("human-readable max-depth summarize total apparent-size all")
    ),
    "echo": _Program(flags="neE", has_files=False),
    "egrep": _GREP,
    "expr": _Program(has_files=False),
    "false": _Program(),
    "fgrep": _GREP,
    "file": _Program(flags="biLh", long=_long("brief mime mime-type")),
    "find": _Program(words=_FIND_TESTS),
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
    ),
    "md5sum": _SUMS,
    "nl": _Program(valued="bdfhilnsvw"),
    "paste": _Program(flags="sz", valued="d"),
    "printf": _Program(has_files=False),
    "pwd": _Program(flags="LP", operands=0),
    "readlink": _Program(flags="efmnqsvz"),
    "realpath": _Program(flags="eLmPqsz", long=_long("relative-to relative-base canonicalize-existing")),
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
        has_pattern=True,
    ),
    "seq": _Program(flags="w", valued="sf"),
    "sha1sum": _SUMS,
    "sha256sum": _SUMS,
    "sha512sum": _SUMS,
    "sort": _Program(
        flags="bdfghiMnrRsuVcCmz", valued="kt", long=_long("key field-separator numeric-sort reverse unique")
    ),
    "stat": _Program(flags="Lft", valued="c", long=_long("format printf terse dereference")),
    "tac": _Program(flags="br", valued="s"),
    "tail": _Program(flags="qvz", valued="nc", long=_long("lines bytes quiet verbose"), has_number=True),
    "test": _Program(flags="abcdefghkprstuwxzLSONG", words=_TEST_OPERATORS),
    "tr": _Program(flags="cCdst", has_files=False, operands=2),
    "tree": _Program(flags="adfhipsugDFNC", valued="LPI", long=_long("dirsfirst gitignore noreport")),
    "true": _Program(),
    "uname": _Program(flags="asnrvmpio", operands=0),
    "uniq": _Program(flags="cdDiuz", valued="fsw", long=_long("count repeated unique ignore-case"), operands=1),
    "wc": _Program(flags="clLmw", long=_long("lines words bytes chars")),
    "which": _Program(flags="a"),
    "whoami": _Program(operands=0),
}
_WITH_VERSION: Final = frozenset({"bash", "gcc", "git", "make", "node", "python", "python3", "rg"})
"""Programs whose `--version` neither reads nor runs anything of a project."""
_STANDARD_INPUT: Final = "-"
_NULL_DEVICE: Final = "/dev/null"


class _Place(Struct):
    """The folders that a command may run in, and those below which it may read."""

    folders: list[str]
    roots: tuple[str, ...]

    @property
    def has_moved(self) -> bool:
        """True after a `cd`."""
        return len(self.folders) > 1


def explain_reading(commands: Sequence[tuple[str, ...]], root: str, readable: Sequence[str] = ()) -> list[str]:
    """Return for each command why it only reads files below a folder; an empty string if it may do more.

    After a `cd`, which may have had no effect, operands must lie below the folder wherever the command runs.
    """
    start = os.path.realpath(root)
    place, reasons = _Place([start], (start, *map(os.path.realpath, readable))), list[str]()
    for words in commands:
        if words[0] == "cd" and len(words) == 2 and _is_below(words[1], place):  # noqa: PLR2004 - cd and a folder
            place.folders += [os.path.realpath(os.path.join(each, words[1])) for each in place.folders]
            reasons.append(f"cd goes to a folder below {root}")
        else:
            reasons.append(f"{_name_command(words)} only reads" if _only_reads(words, place) else "")
    return reasons


def _name_command(words: Sequence[str]) -> str:
    return " ".join(words[:2]) if words[0] == "git" else words[0]


def _only_reads(words: Sequence[str], place: _Place) -> bool:
    name, rest = words[0], words[1:]
    if name in _WITH_VERSION and tuple(rest) == ("--version",):
        return True
    if name == "git":
        return not place.has_moved and _git_only_reads(rest, place)
    program = _PROGRAMS.get(name)
    return program is not None and _has_known_words(program, rest, place)


def _git_only_reads(rest: Sequence[str], place: _Place) -> bool:
    if rest and rest[0] == "--no-pager":
        rest = rest[1:]
    if tuple(rest) in _GIT_PHRASES:
        return True
    program = _GIT.get(rest[0]) if rest else None
    return program is not None and _has_known_words(program, rest[1:], place)


def _has_known_words(program: _Program, rest: Sequence[str], place: _Place) -> bool:
    """Return True if the program has each option, and each operand is a file below the folder."""
    operands: list[str] = []
    values: list[str] = []
    has_pattern, is_value, ended = program.has_pattern, False, False
    for word in rest:
        if is_value:
            is_value = False
            values.append(word)
        elif ended or not word.startswith("-") or word == _STANDARD_INPUT:
            operands.append(word)
        elif word == "--":
            ended = True
        elif (value := _match_option(program, word)) is None:
            return False
        else:
            is_value = value == "" and _takes_next(program, word)
            values.append(value)
            has_pattern = has_pattern and word[:2] not in {"-e", "-f"} and not word.startswith("--regexp")
    if len(operands) > program.operands or not all(each.startswith(program.operand_start) for each in operands):
        return False
    files = operands[1:] if has_pattern else operands if program.has_files else []
    return all(_is_below(each, place) for each in [*files, *filter(None, values)])


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
    pieces = [word, *re.split(r"[=:,]", word)]
    if any(find_blocking_pattern(each.split("/"), SENSITIVE_NAMES) for each in pieces if each):
        return False
    paths = [os.path.realpath(os.path.join(folder, each)) for folder in place.folders for each in pieces]
    return all(any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in place.roots) for path in paths)
