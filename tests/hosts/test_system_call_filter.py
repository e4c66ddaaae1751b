"""The filter of system calls: what commands ask of the kernel in vain, and that everyday programs do not need it."""

import asyncio
import ctypes
import errno
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from perdure._io.processes.tree import list_descendants
from perdure._tools.sandbox import bubblewrap, seccomp
from perdure._tools.sandbox.seccomp import MACHINES, MISSING_CALLS, REFUSED_CALLS, build_system_call_filter
from perdure.hosts import LocalShell, ShellCommand
from tests.doubles import until

ALLOW, KILL, ERROR = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
X86, ARM = "x86_64", "aarch64"
CALLER = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = []
for words in json.load(sys.stdin):
    ctypes.set_errno(0)
    result = libc.syscall(*[ctypes.c_long(each) for each in words])
    answers.append(ctypes.get_errno() if result == -1 else 0)
print(json.dumps(answers))
"""
FOLDER = ctypes.create_string_buffer(b".")
needs_filter = pytest.mark.skipif(platform.machine() not in MACHINES, reason="there is no filter for this processor")


def decide(machine, number, *arguments, architecture=None, **options):
    """Run the filter as the kernel would, and return what it decides about a system call."""
    code = build_system_call_filter(machine, **options)
    program = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    values = [each & (2**64 - 1) for each in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number, architecture or MACHINES[machine].architecture, 0, *values)
    at = held = 0
    while True:
        operation, if_true, if_false, constant = program[at]
        at += 1
        if operation == 0x06:
            return constant
        if operation == 0x20:
            (held,) = struct.unpack_from("<I", data, constant)
        elif operation == 0x54:
            held &= constant
        else:
            holds = {0x15: held == constant, 0x25: held > constant, 0x45: bool(held & constant)}[operation]
            at += if_true if holds else if_false


async def run(root, line="", *, argv=(), stdin="", **options):
    async with LocalShell(root, sandbox="require", **options) as shell:
        return await asyncio.wait_for(shell.run(ShellCommand(line=line, argv=argv, stdin=stdin)), 60)


async def call_inside(root, *calls, **options):
    """Make system calls in the sandbox, and return the error number of each, or 0."""
    result = await run(root, argv=(sys.executable, "-I", "-c", CALLER), stdin=json.dumps(calls), **options)
    assert result.exit_code == 0, str(result.stderr)
    return json.loads(str(result.stdout))


def number_here(numbers):
    return numbers[MACHINES[platform.machine()].column]


@needs_filter
@pytest.mark.needs("bubblewrap")
async def test_the_kernel_refuses_each_call_of_the_lists(tmp_path):
    refused = {name: number for name, each in REFUSED_CALLS.items() if (number := number_here(each)) >= 0}
    missing = {name: number for name, each in MISSING_CALLS.items() if (number := number_here(each)) >= 0}
    answers = await call_inside(tmp_path, *[[number] for number in (*refused.values(), *missing.values())])
    wrong = {
        name: answer
        for name, answer, wanted in zip(
            (*refused, *missing),
            answers,
            [errno.EPERM] * len(refused) + [errno.ENOSYS] * len(missing),
            strict=True,
        )
        if answer != wanted
    }
    assert wrong == {}


def read_status(pid):
    """Return what the kernel tells about a process."""
    return Path(f"/proc/{pid}/status").read_text()


@needs_filter
@pytest.mark.needs("bubblewrap")
async def test_every_process_of_a_command_has_the_filter(tmp_path):
    async with LocalShell(tmp_path, sandbox="require") as shell:
        await shell.start(ShellCommand(line="sleep 20 & touch begun; sleep 20"))
        await until((tmp_path / "begun").exists)
        (job,) = shell._jobs.values()
        states = [read_status(pid) for pid in list_descendants(job._process.pid)]
    assert len(states) >= 3
    assert all("Seccomp:\t2\n" in each for each in states)


@needs_filter
@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("network", [True, False])
async def test_only_sockets_of_the_internet_can_be_made_and_pairs(tmp_path, network):
    script = """
import errno, socket
def attempt(make, *words):
    try:
        made = make(*words)
        for each in made if isinstance(made, tuple) else (made,):
            each.close()
        return "made"
    except OSError as error:
        return errno.errorcode[error.errno]
print(*[attempt(socket.socket, family, kind, protocol) for family, kind, protocol in (
    (2, 1, 0), (10, 2, 0), (16, 3, 0), (2, 1, 6), (2, 2, 17),
    (1, 1, 0), (1, 2, 0), (17, 3, 0), (38, 5, 0), (40, 1, 0), (16, 3, 9), (16, 3, 15), (31, 3, 1), (2, 1, 262),
    (2, 1, 132), (43, 1, 0), (44, 3, 0), (21, 5, 0))])
print(*[attempt(socket.socketpair, 1, kind) for kind in (1, 5, 2, 3)])
"""
    result = await run(tmp_path, argv=(sys.executable, "-I", "-c", script), network=network)
    sockets, pairs = [line.split() for line in str(result.stdout).splitlines()]
    assert sockets[:5] == ["made"] * 5
    assert sockets[5:7] == ["EPERM"] * 2
    assert set(sockets[7:]) == {"EAFNOSUPPORT", "EPROTONOSUPPORT"}
    assert pairs == ["made", "made", "EPERM", "EPERM"]


@needs_filter
@pytest.mark.needs("bubblewrap")
async def test_no_file_can_get_the_bits_that_lend_a_user_in_any_way(tmp_path):
    (tmp_path / "made").write_text("#!/bin/sh\n")
    line = f"""
    chmod 4755 made; chmod u+s made; chmod g+s made; install -m 6755 made installed; cp made c; chmod 2755 c
    mkdir -m 2777 folder; tar cf t --mode=4755 made; mkdir x; tar -C x -xpf t
    {sys.executable} -I -c '
import os
for way in (
    lambda: os.open("opened", os.O_CREAT | os.O_WRONLY, 0o4777),
    lambda: os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4777),
    lambda: os.mknod("node", 0o104777),
    lambda: os.chmod("made", 0o6777),
    lambda: os.fchmod(os.open("made", os.O_RDONLY), 0o6777),
    lambda: os.setxattr("made", "security.capability", bytes(20)),
):
    try:
        way()
        print("done")
    except PermissionError:
        pass
'
    """
    result = await run(tmp_path, line)
    assert str(result.stdout) == ""
    assert not [each for each in tmp_path.rglob("*") if each.lstat().st_mode & 0o6000]
    assert (tmp_path / "x" / "made").exists()


@needs_filter
@pytest.mark.needs("bubblewrap")
async def test_the_keyring_of_the_session_cannot_be_reached(tmp_path):
    add, keyctl = [number_here(REFUSED_CALLS[name]) for name in ("add_key", "keyctl")]
    described = [[keyctl, 6, ring] for ring in (-1, -2, -3, -4, -5)]  # KEYCTL_DESCRIBE
    searched, joined = [keyctl, 10, -3, 0, 0, 0], [keyctl, 1, 0]
    assert set(await call_inside(tmp_path, *described, searched, joined, [add, 0, 0, 0, 0, -3])) == {errno.EPERM}
    assert str((await run(tmp_path, "cat /proc/keys /proc/key-users 2>&1")).stdout).count("keyring") == 0


@needs_filter
@pytest.mark.needs("bubblewrap")
async def test_a_terminal_cannot_be_typed_on(tmp_path):
    script = """
import errno, fcntl, os, termios
controller, terminal = os.openpty()
for request in (0x5412, 0x5412 | 1 << 32, 0x541C):
    try:
        fcntl.ioctl(terminal, request & 0xFFFFFFFF, b"x")
        print("typed")
    except PermissionError:
        print("refused")
"""
    result = await run(tmp_path, argv=(sys.executable, "-I", "-c", script))
    assert str(result.stdout).split() == ["refused"] * 3, str(result.stderr)


@needs_filter
@pytest.mark.needs("bubblewrap")
async def test_no_namespace_can_be_made(tmp_path):
    flags = [1 << bit for bit in (7, 17, 25, 26, 27, 28, 29, 30)]
    unshare, clone = (272, 56) if platform.machine() == X86 else (97, 220)
    calls = [[unshare, each] for each in flags] + [[clone, each | 17, 0, 0, 0, 0] for each in flags[1:]]
    assert set(await call_inside(tmp_path, *calls)) == {errno.EPERM}


@needs_filter
@pytest.mark.needs("bubblewrap")
async def test_unix_sockets_can_be_permitted(tmp_path):
    script = "import socket; a = socket.socket(socket.AF_UNIX); a.bind('s'); a.listen(); print('listens')"
    result = await run(tmp_path, argv=(sys.executable, "-I", "-c", script), unix_sockets=True)
    assert str(result.stdout) == "listens\n", str(result.stderr)


EVERYDAY = {
    "python3": """python3 -c '
import subprocess, threading, asyncio, multiprocessing.pool as p
asyncio.run(asyncio.sleep(0))
t = threading.Thread(target=print, args=(1,)); t.start(); t.join()
subprocess.run(["true"], check=True)
print(p.ThreadPool(2).map(abs, [-2]), p.Pool(2).map(abs, [-2]))'""",
    "node": "node -e \"require('fs').writeFileSync('a', 'b'); require('child_process').execSync('true'); "
    "require('net').createServer().listen(0, '127.0.0.1', function () { console.log('ok'); this.close() })\"",
    "npm": "npm --version",
    "gcc": "printf 'int main(){return 0;}' > m.c && printf 'm: m.c\\n\\tgcc -o m m.c\\n' > Makefile && make -s && ./m",
    "cargo": "cargo --version && rustc --version",
    "go": "go version",
    "rg": "echo hello > f; rg -c hello; rg --threads 4 -c hello .",
    "git": "git init -q && touch a && git add a && git -c user.name=a -c user.email=b commit -qm first && git gc -q",
    "bash": "set -m; sleep 0.01 & jobs > jobs; wait; (trap 'exit 0' TERM; kill $BASHPID); diff <(echo a) <(echo a)",
    "tar": "mkdir d; echo x > d/f; tar cf - d | gzip | gunzip | tar xf - -C /tmp; cp -a d e; ls -la e; stat e/f",
    "perl": "perl -e 'fork or exit 0; wait; print 1'",
    "ip": "ip addr",
}


def works_here(program: str, folder: Path) -> bool:
    """Return True if a program does its work without the sandbox."""
    done = subprocess.run(["bash", "-c", EVERYDAY[program]], cwd=folder, capture_output=True, check=False)
    return done.returncode == 0


@needs_filter
@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("program", EVERYDAY)
async def test_everyday_programs_work_with_the_filter(tmp_path, program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    if not works_here(program, tmp_path / "outside"):
        pytest.skip(f"{program} does not work without the sandbox either")  # such as rustup's without a toolchain
    result = await run(tmp_path / "inside", EVERYDAY[program])
    assert result.exit_code == 0, f"{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_other_processors_end_the_program_and_unknown_ones_are_missing(machine):
    for architecture in (0x4000_0003, 0x4000_0028, 0xC000_00F3):  # 32-bit x86, 32-bit ARM, RISC-V
        assert decide(machine, 0, architecture=architecture) == KILL
    assert decide(machine, 0x4000_0000) == ERROR | errno.ENOSYS  # x32
    assert decide(machine, 470) == decide(machine, 2**32 - 1) == ERROR | errno.ENOSYS
    assert decide(machine, 0) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_lists_hold_on_each_processor(machine):
    column = MACHINES[machine].column
    for calls, wanted in ((REFUSED_CALLS, errno.EPERM), (MISSING_CALLS, errno.ENOSYS)):
        numbers = [each[column] for each in calls.values() if each[column] >= 0]
        assert {decide(machine, number, -1, -1, -1) for number in numbers} == {ERROR | wanted}
    listed = [each[column] for calls in (REFUSED_CALLS, MISSING_CALLS) for each in calls.values() if each[column] >= 0]
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("call", "arguments", "wanted"),
    [
        ({X86: 257, ARM: 56}, (0, 0, 0o4777 & 0, 0o4777), ALLOW),  # openat reads no mode unless it creates
        ({X86: 257, ARM: 56}, (0, 0, os.O_CREAT, 0o644), ALLOW),
        ({X86: 257, ARM: 56}, (0, 0, os.O_CREAT, 0o4644), ERROR | errno.EPERM),
        ({X86: 257, ARM: 56}, (0, 0, os.O_DIRECTORY, 0o4644), ALLOW),
        ({X86: 2}, (0, os.O_CREAT, 0o2644), ERROR | errno.EPERM),
        ({X86: 85}, (0, 0o4755), ERROR | errno.EPERM),
        ({X86: 452, ARM: 452}, (0, 0, 0o4755), ERROR | errno.EPERM),
        ({X86: 268, ARM: 53}, (0, 0, 0o1777), ALLOW),
        ({X86: 91, ARM: 52}, (0, (1 << 32) | 0o4755), ERROR | errno.EPERM),
        ({X86: 16, ARM: 29}, (0, 0x5412), ERROR | errno.EPERM),
        ({X86: 16, ARM: 29}, (0, 0x5412 | 1 << 32), ERROR | errno.EPERM),  # the kernel drops the upper half
        ({X86: 16, ARM: 29}, (0, 0x5413), ALLOW),
        ({X86: 56, ARM: 220}, (0x0100_0000 | 0x0010_0000 | 17,), ALLOW),  # a process of the C library
        ({X86: 56, ARM: 220}, (0x1000_0000 | 17,), ERROR | errno.EPERM),
        ({X86: 272, ARM: 97}, (0x400,), ALLOW),  # CLONE_FILES
        ({X86: 272, ARM: 97}, (0x80,), ERROR | errno.EPERM),
        ({X86: 135, ARM: 92}, (0xFFFF_FFFF,), ALLOW),
        ({X86: 135, ARM: 92}, (0x0040_0000,), ERROR | errno.EPERM),
        ({X86: 41, ARM: 198}, (2, 1, 0), ALLOW),
        ({X86: 41, ARM: 198}, (1, 1, 0), ERROR | errno.EPERM),
        ({X86: 41, ARM: 198}, (1 | 1 << 32, 1, 0), ERROR | errno.EPERM),
        ({X86: 41, ARM: 198}, (40, 1, 0), ERROR | errno.EAFNOSUPPORT),
        ({X86: 53, ARM: 199}, (1, 1 | 0o2004000, 0), ALLOW),
        ({X86: 53, ARM: 199}, (1, 2 | 0o2004000, 0), ERROR | errno.EPERM),
    ],
)
def test_a_call_is_decided_by_its_arguments(call, arguments, wanted):
    for machine, number in call.items():
        assert decide(machine, number, *arguments) == wanted


def test_a_processor_without_a_filter_has_a_sandbox_without_it(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with bubblewrap.filter_system_calls(["bwrap", "--x"]) as (words, descriptors):
        assert (words, descriptors) == (["bwrap", "--x"], ())


def test_the_file_of_the_filter_is_closed_when_the_command_has_started():
    if not seccomp.has_system_call_filter():
        pytest.skip("there is no filter for this processor")
    with bubblewrap.filter_system_calls(["bwrap", "--x"]) as (words, descriptors):
        assert words == ["bwrap", "--seccomp", str(descriptors[0]), "--x"]
        assert os.read(descriptors[0], 8)[:2] == b"\x20\x00"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])


@needs_filter
@pytest.mark.needs("bubblewrap")
@pytest.mark.skipif(platform.machine() != X86, reason="another processor has no such calls")
def test_a_32_bit_call_ends_the_program(tmp_path):
    source = tmp_path / "old.c"
    source.write_text('int main(void){int r; __asm__ volatile("int $0x80":"=a"(r):"0"(20)); return r > 0 ? 7 : 8;}\n')
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    subprocess.run(["gcc", "-o", tmp_path / "old", source], check=True)
    result = asyncio.run(run(tmp_path, "./old; echo $?"))
    assert str(result.stdout).split()[-1] == str(128 + 31)  # SIGSYS
