"""Command lines taken apart: what is proved, what is not, and a search for lines of which bash runs more."""

import os
import random
import subprocess
import tempfile
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from perdure._tools.shell import parser as command_line
from perdure._tools.shell.parser import MAX_CHARACTERS, MAX_COMMANDS
from perdure.tools import split_command_line
from tests.seeds import SEED

LONG = os.environ.get("PERDURE_SEARCH") == "long"


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("ls -la", ["ls -la"]),
        ("git status && git log", ["git status", "git log"]),
        ("cat a | grep b | wc -l", ["cat a", "grep b", "wc -l"]),
        ("make; make test", ["make", "make test"]),
        ("make || echo failed", ["make", "echo failed"]),
        ("a\nb\n", ["a", "b"]),
        ("make 2>&1 | tail -5", ["make", "tail -5"]),
        ("make >/dev/null 2>&1; ls", ["make", "ls"]),
        ("make &>/dev/null && ls < /dev/null", ["make", "ls"]),
        ("cd src && ls", ["cd src", "ls"]),
        ("test -f a && echo yes", ["test -f a", "echo yes"]),
        ("ls;", ["ls"]),
    ],
)
def test_a_line_of_simple_commands_is_taken_apart(line, commands):
    assert [" ".join(words) for words in split_command_line(line) or ()] == commands


def test_words_in_quotes_are_words():
    assert split_command_line("git commit -m 'a; b' && echo \"c d\"e") == [
        ("git", "commit", "-m", "a; b"),
        ("echo", "c de"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        *("echo $x; ls", "echo $(id)", "echo `id`", "ls *.py; ls", "ls ~; ls", "a{b,c}; d", "ls > f", "ls >> f; a"),
        *("a < f; b",),
        *("a & b", "a &", "a |& b", "(a; b)", "{ a; b; }", "! a; b", "time a; b", "A=b c; d", "A=b; c"),
        *("a <<E\nx\nE\n",),
        *("a <<< b; c", "if a; then b; fi", "for a in b; do c; done", "while a; do b; done", "f() { a; }; f"),
        *("[[ a ]]; b",),
        *("((a)); b", "[ -v 'a[$(id)]' ]; b", "a \\\n b", "a; b # c", "a\rb; c", "a\u00a0b; c", "a\0b; c", "a; 'b"),
        *("a;;b",),
        *("eval a; b", "exec a; b", "source a; b", ". a; b", "alias a=b; a", "export A=b; c", "unset a; b"),
        *("set -e; a",),
        *("trap a EXIT; b", "hash -p x ls; ls", "enable -f x y; y", "printf -v PATH x; ls", "test -v 'a[$(id)]'; b"),
        *("read a; b", "cd; ls", "cd -; ls", "cd a b; ls", "pushd a; ls", "command rm; a", "builtin cd; a"),
        *("shopt -s x; a",),
        *("coproc a; b", "a 2>b; c", "a >&3; b", "a >(b); c", "a <(b); c", "diff <(a) <(b)", "a $'b'; c", 'a $"b"; c'),
        *("a; -b", "=a; b", "'' ; b", "ls 2>/dev/null x; a", "a !b; c", "a ^b^c; d", "mapfile -C id x; a", "wait; a"),
        *("&& a", "a &&", "a | | b", ";", "", "\n", "a; kill -9 1"),
    ],
)  # fmt: skip
def test_everything_else_proves_nothing(line):
    assert split_command_line(line) is None


def test_a_line_that_is_too_long_or_has_too_many_commands_proves_nothing():
    assert len(split_command_line("; ".join(["ls"] * MAX_COMMANDS)) or ()) == MAX_COMMANDS
    assert split_command_line("; ".join(["ls"] * (MAX_COMMANDS + 1))) is None
    assert split_command_line("ls; ls " + "x" * MAX_CHARACTERS) is None


def test_without_the_parser_only_a_simple_command_is_split(monkeypatch):
    monkeypatch.setattr(command_line, "load_bash_parser", lambda: None)
    assert split_command_line("git status") == [("git", "status")]
    assert split_command_line("git status; ls") is None


def test_the_parser_is_absent_without_its_packages(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tree_sitter_bash", None)
    assert command_line.load_bash_parser.__wrapped__() is None


# -- against bash itself -----------------------------------------------------------------------------------------------

HARNESS = r"""
command_not_found_handle() { local IFS=$'\x1f'; printf '%s\x1f\x1e' "$*" >&9; return "$code"; }
while IFS= read -r -d '' line; do
  for code in 0 1; do
    ( eval "$line" ) >/dev/null 2>&1 </dev/null
  done
  printf '\x1d' >&9
done
"""
"""Evaluates each line, twice: every command succeeds, then every command fails. What is run is written to 9."""

PIECES = [
    *("aa", "bb", "cc", "dd -x", "ee 'f g'", 'hh "i j"', "echo kk", "true", "false", "cd /", "aa=bb", "-x", "12"),
    *(
        " ",
        " ",
        " ",
        "  ",
        "\t",
        "\n",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "|&",
        "!",
        "#",
        "\\",
        "\\\n",
        "'",
        '"',
        "`",
        "$",
        "$x",
    ),
    *(
        "$(aa)",
        "${aa}",
        "$'a'",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "[[",
        "]]",
        "((",
        "))",
        "<",
        ">",
        ">>",
        "<<",
        "<<<",
        "2>",
    ),
    *(
        ">&",
        "2>&1",
        ">/dev/null",
        "&>/dev/null",
        "</dev/null",
        "*",
        "?",
        "~",
        "=",
        ",",
        "{a,b}",
        "if",
        "then",
        "fi",
        "do",
    ),
    *(
        "done",
        "time",
        "test -f x",
        "printf a",
        "\u00a0",
        "\r",
        "\v",
        "é",
        "%",
        "^",
        "@",
        ":",
        "a:b",
        "1>&2",
        ">&2",
        "|| :",
    ),
]


def draw_line(chance):
    """Return a line of random pieces; most are lines that look reasonable."""
    if chance.random() < 0.5:
        return "".join(chance.choices(PIECES, k=chance.randrange(1, 9)))
    commands = chance.choices(
        ["aa", "bb -x", "cc 'd e'", 'ff "g"', "cd /", "echo x", "test -f x"], k=chance.randrange(1, 5)
    )
    ends = [chance.choice(["", "", "", " 2>&1", " >/dev/null", chance.choice(PIECES)]) for _ in commands]
    joints = [chance.choice([";", " && ", " || ", " | ", "\n", " ", chance.choice(PIECES)]) for _ in commands]
    return "".join([part for each in zip(commands, ends, joints, strict=True) for part in each])


def run_in_bash(lines, folder):
    """Return the commands that bash runs for each line, as a set of words."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as told:
        given.write("".join([f"{line}\0" for line in lines]).encode())
        given.seek(0)
        subprocess.run(
            ["/bin/bash", "--norc", "--noprofile", "-c", f"exec 9>>/proc/self/fd/{told.fileno()}\n{HARNESS}"],
            stdin=given,
            env={"PATH": "/nowhere"},
            cwd=folder,
            pass_fds=(told.fileno(),),
            check=True,
        )
        told.seek(0)
        runs = told.read().decode().split("\x1d")[:-1]
    return [{tuple(each.split("\x1f")[:-1]) for each in run.split("\x1e")[:-1]} for run in runs]


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_bash_runs_nothing_that_a_split_line_does_not_have(tmp_path):
    chance = random.Random(SEED)
    drawn = {draw_line(chance) for _ in range(200_000 if LONG else 6_000)}
    split = {line: commands for line in sorted(drawn) if (commands := split_command_line(line)) is not None}
    assert len(split) > len(drawn) / 20, "too few lines are proved for this to mean anything"
    for line, ran in zip(split, run_in_bash(split, tmp_path), strict=True):
        assert ran <= set(split[line]), line
    assert list(tmp_path.iterdir()) == []  # and nothing was redirected to a file


def test_each_command_of_a_split_line_is_one_that_bash_runs(tmp_path):
    lines = ["aa 1; bb 2", "aa 'x y' | bb && cc || dd", "aa\nbb >/dev/null 2>&1"]
    for line, ran in zip(lines, run_in_bash(lines, tmp_path), strict=True):
        assert ran == set(split_command_line(line) or ())


def test_a_line_of_exactly_the_limit_is_taken_apart():
    line = "ls; pwd".ljust(MAX_CHARACTERS)
    assert split_command_line(line) == [("ls",), ("pwd",)]
    assert split_command_line(line + " ") is None


def test_the_packages_are_there_if_the_parser_is():
    assert command_line.has_parser() is (command_line.load_bash_parser() is not None)


class FakeNode(NamedTuple):
    """A part of a line as the parser finds it."""

    type: str
    text: str
    start_byte: int
    children: tuple["FakeNode", ...] = ()
    has_error: bool = False

    @property
    def end_byte(self) -> int:
        return self.start_byte + len(self.text)


def part(kind: str, line: str, text: str, *children: FakeNode) -> FakeNode:
    """Return a node for the place at which a text first occurs in a line."""
    return FakeNode(kind, text, line.index(text), children)


def make_command(line: str, text: str) -> FakeNode:
    words = [part("command_name" if not n else "word", line, word) for n, word in enumerate(text.split(" "))]
    return part("command", line, text, *words)


def split_with(monkeypatch: pytest.MonkeyPatch, line: str, *children: FakeNode) -> list[tuple[str, ...]] | None:
    """Split a line whose structure another parser has found."""
    root = part("program", line, line.strip(), *children)
    parser = SimpleNamespace(parse=lambda _: SimpleNamespace(root_node=root))
    monkeypatch.setattr(command_line, "load_bash_parser", lambda: parser)
    return split_command_line(line)


def test_a_line_is_split_as_the_structure_says(monkeypatch: pytest.MonkeyPatch) -> None:
    line = " ls a; wc 2>&1 "
    redirected = part(
        "redirected_statement", line, "wc 2>&1", make_command(line, "wc"), part("file_redirect", line, "2>&1")
    )
    children = (make_command(line, "ls a"), part(";", line, ";"), redirected)
    assert split_with(monkeypatch, line, *children) == [("ls", "a"), ("wc",)]


@pytest.mark.parametrize("line", ["x; ls; wc", "ls x; wc", "ls; x wc", "ls; wc; x", "\\ls; wc"])
def test_what_the_structure_leaves_out_of_a_line_proves_nothing(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    separator = FakeNode(";", ";", line.rindex(";", 0, line.index("wc")))
    assert split_with(monkeypatch, line, make_command(line, "ls"), separator, make_command(line, "wc")) is None


def test_what_the_structure_leaves_out_of_a_part_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "ls; wc x; id"
    inner = part("list", line, "wc x", make_command(line, "wc"))
    children = (make_command(line, "ls"), part(";", line, ";"), inner, FakeNode(";", ";", 8), make_command(line, "id"))
    assert split_with(monkeypatch, line, *children) is None


def test_a_redirection_outside_of_its_statement_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "2>&1; ls"
    children = (part("file_redirect", line, "2>&1"), part(";", line, ";"), make_command(line, "ls"))
    assert split_with(monkeypatch, line, *children) is None


def test_an_unknown_part_of_a_redirected_statement_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "ls 2>&1; ls"
    redirected = part(
        "redirected_statement", line, "ls 2>&1", make_command(line, "ls"), part("herestring_redirect", line, "2>&1")
    )
    assert split_with(monkeypatch, line, redirected, part(";", line, ";"), make_command(line, "ls")) is None


@pytest.mark.parametrize("words", [["command_name ls"], ["command_name l", "word s", "word a b"]])
def test_words_on_which_the_parsers_do_not_agree_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    line = "ls a b; wc"
    nodes = [part(kind, line, text) for kind, _, text in [each.partition(" ") for each in words]]
    command = part("command", line, "ls a b", *nodes)
    assert split_with(monkeypatch, line, command, part(";", line, ";"), make_command(line, "wc")) is None
