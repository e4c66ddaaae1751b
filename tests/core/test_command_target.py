"""Commands as targets: what is one simple command, and what patterns match. Hostile spellings are in tests/security."""

import shlex
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure import ConfigError
from perdure._core.permission.targets.command import (
    CommandPart,
    CommandPattern,
    build_subcommand_pattern,
    split_simple_command,
)
from perdure.permissions import CommandTarget


@pytest.mark.parametrize("command", ["ls\nrm", "ls \x1b", 'ls "$x"', "ls 'a", "''", "X=1 ls", "if", "-x", "ls #"])
def test_what_only_a_shell_can_interpret_has_no_words(command):
    assert CommandTarget.of(command).argv == ()


@pytest.mark.parametrize(
    ("line", "last"), [("git diff HEAD~1", "HEAD~1"), ("ls ~", None), ("a b=~", None), ("a b:~", None)]
)
def test_a_tilde_means_something_only_where_a_shell_replaces_it(line, last):
    assert (split_simple_command(line) or (None,))[-1] == last


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls", ("ls",)),
        (" \tgit  status\t-s ", ("git", "status", "-s")),
        ("""echo "a b" 'c d'e f"g"h ''""", ("echo", "a b", "c de", "fgh", "")),
        ("""echo "it's" '"' """, ("echo", "it's", '"')),
        ("echo 'a$b`c\\!'", ("echo", "a$b`c\\!")),
        ('echo "a|b;c*?"', ("echo", "a|b;c*?")),
        ("echo a=b", ("echo", "a=b")),
        ("echo a~b", ("echo", "a~b")),
        *[(f'echo "a{each}"', None) for each in "$`\\!"],
        *[(f"echo a{each}b", None) for each in "|&;<>()$`\\*?[]{}!#^\n\r"],
        *[(line, None) for line in ("", " ", "''", '"" a', "a 'b", 'a "b', "a\u200bb", "a\x00", "while x", "A=1 b")],
    ],
)
def test_a_simple_command_is_split_as_a_shell_does_and_others_are_not(line, words):
    assert split_simple_command(line) == words


def test_a_line_that_was_parsed_is_allowed_if_each_part_that_does_more_than_read_is():
    git, read, other = CommandPart(("git", "push")), CommandPart(("cat", "x"), "cat only reads"), CommandPart(("rm",))
    pattern = CommandPattern("git *")

    def allows(*parts, argv=()):
        return pattern.allows(CommandTarget("…", argv, parts))

    assert allows(git)
    assert allows(git, read)
    assert not allows(git, other)
    assert not allows(read)
    assert not allows()
    assert allows(other, argv=("git", "log"))
    assert not allows(git, argv=("rm",))
    assert not CommandPattern("git push origin").allows(CommandTarget("…", ("git", "push")))


def test_spaces_between_words_are_as_many_as_one_likes():
    assert CommandTarget.of("\tls   -l ").argv == ("ls", "-l")


@pytest.mark.parametrize("command", ["", "  ", [], [""], ["a\0"], ["a", 5]])
def test_what_is_no_command_has_no_target(command):
    with pytest.raises(ValueError):
        CommandTarget.of(command)


def test_a_list_of_words_needs_no_shell():
    target = CommandTarget.of(["git", "commit", "-m", "a; b"])
    assert target.argv == ("git", "commit", "-m", "a; b")
    assert str(target) == "git commit -m 'a; b'"
    assert CommandTarget.of(str(target)) == target


def test_a_target_comes_from_an_argument():
    assert CommandTarget.of_argument("line")({"line": "ls -l"}).argv == ("ls", "-l")


@given(st.lists(st.text("ab -_./='\"$;", min_size=1, max_size=6), min_size=1, max_size=4))
def test_words_in_quotes_are_split_as_python_splits_them(words):
    line = shlex.join(words)
    split = split_simple_command(line)
    assert split is None or list(split) == words


@given(st.text("ab '\"$;|&<>\\*~#\t=!{}-", min_size=1, max_size=12))
@example("a 'b'\"c\"")
@example("''")
def test_a_shell_takes_a_simple_command_apart_in_the_same_way(line):
    words = split_simple_command(line)
    if words is None:
        return
    script = f"set -f -- {line}; printf '%s\\0' \"$@\""
    told = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=False)
    assert told.stdout.decode().split("\0")[:-1] == list(words)


@pytest.mark.parametrize(
    ("pattern", "command", "allowed", "denied"),
    [
        ("git status", "git status -s", True, True),
        ("git status", "git", False, False),
        ("git s*", "git stash", True, True),
        ("git *", "git", True, True),
        ("*", "git", True, True),
        ("git", "Git x", False, True),
        ("git", "/usr/bin/git x", False, True),
        ("npm run test:*", "npm run test:unit", True, True),
        ("npm run test:*", "npm run deploy", False, False),
        ("'a b' c", "'a b' c d", True, True),
        ("git push", "ls; git push", False, True),
        ("git push", "ls; git pull", False, False),
    ],
)
def test_a_pattern_is_about_the_first_words(pattern, command, allowed, denied):
    target = CommandTarget.of(command)
    assert CommandPattern(pattern).allows(target) is allowed
    assert CommandPattern(pattern).may_match(target) is denied


@pytest.mark.parametrize(("command", "might"), [("sudo git push", True), ("ls | sh", True), ("ls x", False)])
def test_a_command_that_another_one_may_run_is_not_ruled_out(command, might):
    assert CommandPattern("git push").might_match(CommandTarget.of(command)) is might


@pytest.mark.parametrize("pattern", ["", "  ", "'a"])
def test_a_pattern_without_words_is_refused(pattern):
    with pytest.raises(ConfigError, match="command"):
        CommandPattern(pattern)


@pytest.mark.parametrize(
    ("narrow", "wide", "within"),
    [
        ("git status", "git", True),
        ("git", "git status", False),
        ("git *", "git", True),
        ("git status -s", "git s*", True),
        ("ls", "git", False),
    ],
)
def test_a_pattern_is_within_another_only_if_that_is_certain(narrow, wide, within):
    assert CommandPattern(narrow).is_within(CommandPattern(wide)) is within


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("git log -3", "git log"),
        ("git cherry-pick x", "git cherry-pick"),
        ("npm run-script x", "npm run-script x"),
        ("npm run build:all -- -v", "npm run build:all"),
        ("npm run", None),
        ("npm run ./x", None),
        ("npm run -s", None),
        ("npm exec x", None),
        ("cargo run x", None),
        ("rm x.txt", None),
        ("ls", None),
        ("ls -l", None),
        ("git log | sh", None),
    ],
)
def test_a_program_with_its_subcommand_is_offered(command, pattern):
    offered = build_subcommand_pattern(CommandTarget.of(command))
    assert (offered and offered.pattern) == pattern


@pytest.mark.parametrize(
    "command",
    [
        *("sudo rm x", "doas rm x", "su root", "env rm x", "nice rm x", "nohup rm x", "timeout rm x", "setsid rm x"),
        *(
            "stdbuf rm x",
            "strace rm x",
            "watch rm x",
            "xargs rm",
            "parallel rm",
            "busybox rm x",
            "chroot x rm",
            "flock x rm",
        ),
        *("time rm x", "ssh host rm x", "scp a b", "rsync a b", "curl host", "wget host", "nc host", "docker run x"),
        *(
            "docker exec x rm",
            "podman run x",
            "kubectl exec x",
            "kubectl delete x",
            "helm install x",
            "terraform apply",
        ),
        *("find src -delete", "fd x", "rm a b", "cp a b", "mv a b", "tar xf b", "tee a", "dd a", "chmod x a"),
        *(
            "python x",
            "python3 manage",
            "node x",
            "perl x",
            "bash x",
            "sh x",
            "awk x",
            "sed x",
            "make x",
            "npx x",
            "uvx x",
        ),
        *(
            "uv run x",
            "uv pip x",
            "pip install x",
            "pipx run x",
            "poetry run x",
            "go run x",
            "npm install x",
            "yarn dlx x",
        ),
        *("pnpm dlx x", "npm init x", "gh api x", "aws s3 x", "systemctl stop x", "crontab x", "at now", "mount x"),
        *(
            "git config x",
            "git submodule foreach x",
            "git bisect run x",
            "git rebase x",
            "git filter-branch x",
            "git clone x",
        ),
        *("git difftool x", "git archive x", "git credential x", "./git push", "/tmp/git push", "GIT push", "git Push"),
    ],
)
def test_where_what_follows_says_what_is_done_no_rule_is_offered(command):
    assert build_subcommand_pattern(CommandTarget.of(command)) is None


# -- lines that a parser has taken apart -------------------------------------------------------------------------------


def taken_apart(*commands, reads=()):
    parts = [CommandPart(tuple(each.split()), "it only reads" if each in reads else "") for each in commands]
    return CommandTarget("; ".join(commands), (), tuple(parts))


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        (taken_apart("git push", "git push -f"), True),
        (taken_apart("git push", "ls"), False),
        (taken_apart("git push", "ls", reads=["ls"]), True),
        (taken_apart("ls", "ls", reads=["ls"]), False),
    ],
)
def test_a_pattern_allows_a_line_if_every_part_that_does_more_than_read_begins_with_it(target, allowed):
    assert CommandPattern("git push").allows(target) is allowed


def test_a_pattern_denies_a_line_if_one_part_may_match():
    target = taken_apart("ls", "/bin/RM x", "sudo ln y")
    assert CommandPattern("rm").may_match(target)
    assert not CommandPattern("ln").may_match(target)
    assert CommandPattern("ln").might_match(target)
    assert not CommandPattern("mv").might_match(target)


def test_the_parts_that_do_more_than_read_make_the_wider_pattern():
    assert build_subcommand_pattern(taken_apart("ls", "git push x", "git push y", reads=["ls"])) == CommandPattern(
        "git push"
    )
    assert build_subcommand_pattern(taken_apart("git push x", "git pull")) is None


def test_a_line_only_reads_if_each_of_its_parts_does():
    assert taken_apart("ls", "cat", reads=["ls", "cat"]).reads_only == "it only reads"
    assert taken_apart("ls", "rm", reads=["ls"]).reads_only == ""
    assert CommandTarget("ls", ("ls",)).reads_only == ""
