"""Commands that run unasked, watched by strace: what they open lies in the folder, is no secret, and is not written.

A line is drawn from the table of programs and options, with operands that try to lead elsewhere; those that would run
unasked are run in the real sandbox.

PERDURE_SEARCH=long    draws many more lines
"""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from perdure._io.files.sensitive import SENSITIVE_NAMES, BlockedNames
from perdure._tools.sandbox import bubblewrap
from perdure._tools.shell.read_only import _GIT, _PROGRAMS
from perdure._tools.shell.tools import parse_command_target
from perdure.hosts import LocalShell, ShellCommand
from tests.seeds import IS_SECOND_RUN, SEED

pytestmark = [pytest.mark.needs("bubblewrap", "strace", "ripgrep"), pytest.mark.faults, pytest.mark.timeout(600)]

LONG = os.environ.get("PERDURE_SEARCH") == "long"
LINES = 3_000 if LONG else 100 if IS_SECOND_RUN else 300
BATCH = 50
SECRETS = (
    *(
        ".env",
        "deep/a/b/.env",
        "deep/a/b/server.pem",
        "deep/id_rsa",
        ".ssh/key",
        "deep/.aws/credentials",
        "deep/.e.env",
    ),
    *("src/.env.local", ".hidden/secrets.yaml", "deep/a/b/c/d/e/token.json"),
)
OPERANDS = (
    *(
        "a.py",
        "src",
        "src/a.py",
        "src/b.txt",
        ".",
        "deep",
        "deep/a",
        "deep/a/b",
        "in",
        "in/a.py",
        "in_file",
        "docs/x.md",
    ),
    *("out", "out/passwords", "out_file", "../outside/passwords", "src/../../outside", "in/../../outside/passwords"),
    *("out/../x", "/etc/hostname", "/proc/self/environ", "/proc/self/root/etc", "/dev/null", "-", "missing", ".hidden"),
    *(".env", "./.env", "deep/a/b/.env", "deep/a/b/server.pem", "deep/id_rsa", ".git", ".git/config", "x/../.env"),
    *(
        "=.env",
        "file=.env",
        "@.env",
        "x,.env",
        "*",
        "s*",
        ".e*",
        ".[e]nv",
        "{.env,a.py}",
        "~",
        "~root",
        "$HOME",
        "dir.pem",
    ),
    *("HEAD", "HEAD:a.py", "HEAD:.env", "HEAD~1", "1,3", "5", "x", "[a-z]", "TEXT", "%s", "+%s", ":!a.py", "name", "f"),
)
FIXED = """\
cd src && cat a.py | cd deep/a && ls b | cd in && cat a.py | cd in && ls .. | cd in/.. && ls | cd src; cat ../a.py
cd deep/a/b && grep -r TEXT . | cd out && ls | cd missing; ls | cd src && rg TEXT | cd deep && find . -name x
"""
READING = ("cat", "diff", "du", "file", "find", "grep", "head", "ls", "rg", "rg", "rg", "sort", "tail", "wc")
"""Programs that are drawn more often."""
SYSTEM = re.compile(
    r"/(?:usr|lib|lib64|bin|sbin)(?:/.*)?|/etc/(?:ld\.so\..*|localtime|passwd|group|nsswitch\.conf|magic.*|locale\.alias)"
    r"|/proc/(?:self|\d+)/(?:maps|mountinfo|mounts|stat|status|fd|cgroup)|/proc/(?:filesystems|meminfo|cpuinfo|mounts|stat)"
    r"|/proc/sys/(?:kernel|vm)/\w+|/sys/(?:devices/system/cpu|fs/cgroup)(?:/.*)?|/dev/(?:null|tty|urandom)|/|pipe:.*"
    r"|/etc|/etc/terminfo.*|/run(?:/systemd(?:/userdb)?)?"
)
CALLS = "file,process,pivot_root,read,pread64,readv,preadv,mmap,sendfile,copy_file_range,splice,ftruncate,fchmod,fchown"
CHANGES = re.compile(
    r"(?:rename|renameat2?|unlink|unlinkat|mkdir|mkdirat|rmdir|link|linkat|symlink|symlinkat|chmod|fchmod|fchmodat|chown"
    r"|fchown|lchown|fchownat|truncate|ftruncate|mknod|mknodat|utimensat|setxattr|lsetxattr|creat)\("
)
READS = re.compile(r"(?:read|pread64|readv|preadv|splice|copy_file_range)\(\d+<([^>]*)>.* = (\d+)$")
SENT = re.compile(r"sendfile\(\d+<[^>]*>, \d+<([^>]*)>.* = (\d+)$")
MAPPED = re.compile(r"mmap\(.*, \d+<([^>]*)>, .* = 0x[0-9a-f]+$")
OPENED = re.compile(r"(?:open|openat|openat2|creat)\(.* = \d+<(.*)>$")
SETTING_UP = re.compile(r"pivot_root\(|bwrap|uid_map|max_user_namespaces|newroot")
PRIVATE = re.compile(r'"/tmp/(?:tac|sort)\w{6}"')
"""What tac and sort keep of a long input in the sandbox's own /tmp, which vanishes with it."""
STARTING = re.compile(r'execve\("[^"]*/prlimit"')
BLOCKED = BlockedNames(SENSITIVE_NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with secrets, links out of it, and ignore files that bring what is hidden."""
    top = tmp_path_factory.mktemp("silent")
    root, outside = top / "work", top / "outside"
    for path in ("src", "docs", "deep/a/b/c/d/e", ".hidden", "dir.pem"):
        (root / path).mkdir(parents=True)
    outside.mkdir()
    (outside / "passwords").write_text("TEXT outside\n")
    (top / ".ignore").write_text("!*\n# TEXT above\n")
    for path in (
        "a.py",
        "src/a.py",
        "src/b.txt",
        "docs/x.md",
        "deep/a/b/x",
        ".hidden/x",
        "dir.pem/x",
        "missing.txt",
        "x",
    ):
        (root / path).write_text(f"TEXT {path}\nname\n5\n")
    for name, target in {"out": outside, "out_file": outside / "passwords", "in": "src", "in_file": "src/a.py"}.items():
        (root / name).symlink_to(target)
    (root / "deep" / "link").symlink_to(outside)
    (root / ".ignore").write_text("!.e*\n!*.pem\n!.hidden\n")
    (root / "src" / ".rgignore").write_text("!.env.local\n")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (["init", "-q", "-b", "main"], ["add", "a.py", "src", "docs"], ["commit", "-qm", "One"]):
        subprocess.run(["git", *identity, *words], cwd=root, env=environment, check=True, capture_output=True)
    (root / "a.py").write_text("TEXT changed\n")
    for path in SECRETS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"TEXT secret {path}\n")
    return root


@pytest.fixture
def traced(tmp_path, monkeypatch):
    """The folder of traces: bubblewrap is watched by strace, which sees every process in the sandbox.

    strace is not its parent (`-D`): the mounts of the sandbox are looked at in the child of what was started.
    """
    traces = tmp_path / "traces"
    traces.mkdir()
    start, problem = bubblewrap.find_bubblewrap()
    script = tmp_path / "bwrap"
    words = f"{shutil.which('strace')} -D -ff -qq -y -s 300 -e signal=none -e trace={CALLS} -o {traces}/t"
    script.write_text(f'#!/bin/sh\nexec {words} {start[0]} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: ((str(script), *start[1:]), problem))
    return traces


def draw_option(program, dice):
    kinds = [[f"-{each}" for each in program.flags], [*program.long], [*program.words]]
    kinds = [each for each in [*kinds, [*program.valued]] if each]
    if not kinds:
        return []
    drawn = dice.choice(sorted(dice.choice(kinds)))
    if drawn.startswith("-"):
        with_value = drawn.startswith("--") and dice.random() < 0.3
        return [f"{drawn}={dice.choice(OPERANDS)}" if with_value else drawn]
    return [f"-{drawn}", dice.choice(OPERANDS)] if dice.random() < 0.6 else [f"-{drawn}{dice.choice(OPERANDS)}"]


def draw_line(dice):
    """Return one command, or several with what joins them."""
    is_git = dice.random() < 0.1
    name = dice.choice(sorted(_GIT if is_git else READING if dice.random() < 0.6 else _PROGRAMS))
    program = (_GIT if is_git else _PROGRAMS)[name]
    words = ["git", name] if is_git else [name]
    for _ in range(dice.choice((0, 0, 1, 1, 2, 3))):
        words += draw_option(program, dice)
    words += ["x"] * (program.has_pattern and dice.random() < 0.9)
    words += [dice.choice(OPERANDS) for _ in range(dice.choice((0, 1, 1, 1, 2)))]
    quoted = [f"'{each}'" if dice.random() < 0.3 else each for each in words[1:]]
    line = " ".join([words[0], *quoted])
    return f"{line} {dice.choice(('|', '&&', ';'))} {draw_line(dice)}" if dice.random() < 0.1 else line


def draw_silent_lines(shell, dice, count):
    """Draw lines until so many are found that run unasked."""
    found: dict[str, None] = {}
    for _ in range(count * 200):
        line = draw_line(dice)
        if line not in found and parse_command_target(line, shell).reads_only:
            found[line] = None
            if len(found) == count:
                break
    return [*found]


def read_traces(traces):
    """Return what the commands did: the lines of each process in the sandbox, after the sandbox was set up."""
    found = []
    for file in traces.iterdir():
        lines = file.read_text(errors="replace").splitlines()
        starts = [place for place, line in enumerate(lines) if STARTING.match(line)]
        if starts:
            found += lines[starts[0] :]
        elif not any(map(SETTING_UP.search, lines)):
            found += lines
    return found


def find_violations(lines, root):
    """Return the traced calls that opened a file elsewhere, read one whose name means a secret, or changed anything."""
    problems = []
    for line in lines:
        if PRIVATE.search(line):
            continue
        if (opened := OPENED.search(line)) is not None:
            path = opened[1].removesuffix(" (deleted)")
            is_inside = path == root or path.startswith(f"{root}/")
            if not is_inside and SYSTEM.fullmatch(path) is None and path != f"{Path(root).parent}/.ignore":
                problems.append(line)
            if path != "/dev/null" and re.search(r"O_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND)|creat\(", line):
                problems.append(line)
        elif CHANGES.match(line) and not re.search(r" = -1 E\w+", line):
            problems.append(line)
        elif (read := READS.search(line) or SENT.search(line) or MAPPED.search(line)) is not None:
            path, size = read[1], int(read[2]) if read.lastindex == 2 else 1
            steps = path.removeprefix(f"{root}/").split("/")
            is_secret = path.startswith(f"{root}/") and steps[0] != ".git" and BLOCKED.find(steps)
            if size and (is_secret or path == f"{Path(root).parent}/.ignore"):
                problems.append(line)
    return problems


async def run_watched(shell, lines, traces):
    """Run lines in one sandbox, below strace; return the output, and what they did."""
    done = await shell.run(ShellCommand(line="\n".join(lines), timeout_seconds=120, read_only=True))
    found = read_traces(traces)
    for file in traces.iterdir():
        file.unlink()
    return f"{done.stdout}{done.stderr}", found


async def test_300_silent_commands_open_nothing_elsewhere_and_no_secret_and_write_nothing(folder, traced):
    dice = random.Random(SEED)
    before = {path: path.lstat().st_mtime_ns for path in sorted(folder.rglob("*"))}
    async with LocalShell(folder, sandbox="require", readable=[str(folder.parent)]) as shell:
        lines = draw_silent_lines(shell, dice, LINES)
        fixed = [each.strip() for each in re.split(r"\n| \| ", FIXED) if each.strip()]
        batches = [lines[at : at + BATCH] for at in range(0, len(lines), BATCH)]
        batches += [[each] for each in fixed if parse_command_target(each, shell).reads_only]
        assert len(lines) == LINES
        for batch in batches:
            output, calls = await run_watched(shell, batch, traced)
            assert len(calls) > len(batch)  # each was started below strace
            assert find_violations(calls, str(folder)) == [], "\n".join(batch)
            assert "TEXT secret" not in output, batch
            assert "TEXT outside" not in output, batch
    assert {path: path.lstat().st_mtime_ns for path in sorted(folder.rglob("*"))} == before


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("cat out/passwords", "outside/passwords"),
        ("cat ../outside/passwords", "outside/passwords"),
        ("cat /etc/hostname", "/etc/hostname"),
        ("cat .git/config >/tmp/copy", "/tmp/copy"),
        ("mkdir /tmp/new", "mkdir"),
    ],
)
async def test_the_watch_sees_what_it_is_to_see(folder, traced, line, problem):
    async with LocalShell(folder, sandbox="require", readable=[str(folder.parent)]) as shell:
        _, calls = await run_watched(shell, [line], traced)
    assert any(problem in each for each in find_violations(calls, str(folder)))
