"""What the kernel and the system show to a command in the sandbox."""

# ruff: noqa: ASYNC240 - preparations, while nothing else runs
import asyncio
import os
from pathlib import Path

import pytest

from perdure._tools.sandbox import covers
from perdure._tools.sandbox.covers import bound_kernel_files, hide_files_of_root, list_files_of_root
from perdure.hosts import LocalShell, ShellCommand

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="what only root can read is hidden from root's commands")


async def run(root, line, **options):
    async with LocalShell(root, sandbox="require", **options) as shell:
        return await asyncio.wait_for(shell.run(ShellCommand(line=line)), 30)


@pytest.mark.needs("bubblewrap")
async def test_settings_of_the_kernel_cannot_be_written(tmp_path):
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    line = """
    found=$(find /proc/sys /proc/irq /proc/bus /proc/fs /sys -type f 2>/dev/null)
    for path in $found /proc/sysrq-trigger /proc/mtrr; do
        (: >> $path) 2>/dev/null && echo writable $path
    done
    (echo '|/bin/false' > /proc/sys/kernel/core_pattern) 2>/dev/null && echo changed
    mkdir /sys/x 2>/dev/null && echo made
    """
    result = await run(tmp_path, line)
    writable = [each for each in str(result.stdout).splitlines() if not each.startswith("writable /proc/sysrq")]
    assert writable == []
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


@pytest.mark.needs("bubblewrap")
async def test_the_kernel_shows_nothing_but_processes_processors_and_limits(tmp_path):
    names = "kcore keys key-users kmsg timer_list sched_debug slabinfo vmallocinfo pagetypeinfo kpageflags"
    line = f"""
    for name in {names}; do head -c 10 /proc/$name 2>/dev/null; done | wc -c
    ls -A /proc/acpi /proc/bus /proc/fs /proc/irq /proc/scsi 2>/dev/null | grep -v : | wc -w; ls /sys; nproc
    """
    shown, entries, *rest = str((await run(tmp_path, line)).stdout).split()
    assert (shown, entries) == ("0", "0")
    assert set(rest[:-1]) <= {"devices", "fs"}
    assert int(rest[-1]) >= 1


@pytest.mark.needs("bubblewrap")
async def test_a_command_is_not_root_in_its_sandbox(tmp_path):
    (tmp_path / "mine").touch()
    line = "id -u; id -g; stat -c %u mine; touch made; cat /proc/self/uid_map; git init -q . && git status --short"
    user, group, owner, inside, *_ = str((await run(tmp_path, line)).stdout).split()
    assert user == owner == inside != "0"
    assert group != "0"
    assert (tmp_path / "made").stat().st_uid == os.geteuid()


@only_root
@pytest.mark.needs("bubblewrap")
async def test_what_only_root_can_read_is_hidden_from_its_commands(tmp_path):
    found = [path for path, is_folder in list_files_of_root() if not is_folder]
    assert "/etc/shadow" in found
    line = (
        "for path in /etc/shadow /etc/gshadow /etc/shadow- /etc/sudoers; do cat $path; chmod 644 $path; cat $path; done"
    )
    assert str((await run(tmp_path, line)).stdout) == ""
    readable = " ".join([f"'{each}'" for each in found])
    assert str((await run(tmp_path, f"cat {readable} 2>/dev/null | wc -c")).stdout) == "0\n"


def test_what_others_cannot_read_is_found_and_not_what_they_can(tmp_path, monkeypatch):
    for name, mode in (("secret", 0o600), ("group", 0o640), ("open", 0o644), ("below/deep/secret", 0o400)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "lock").touch(mode=0o600)
    (tmp_path / "link").symlink_to("secret")
    monkeypatch.setattr(covers, "_SEARCHED", ((str(tmp_path), 3), (str(tmp_path / "none"), 1)))
    found = list_files_of_root.__wrapped__()
    expected = [("below/deep/secret", False), ("closed", True), ("group", False), ("secret", False)]
    assert [(os.path.relpath(path, tmp_path), is_folder) for path, is_folder in found] == expected
    monkeypatch.setattr(covers, "list_files_of_root", lambda: found)
    words = list(hide_files_of_root("/empty", [str(tmp_path / "closed" / "work")], [str(tmp_path / "below")]))
    assert words == ["--ro-bind", "/empty", str(tmp_path / "group"), "--ro-bind", "/empty", str(tmp_path / "secret")]


def test_less_is_hidden_from_those_who_cannot_read_it_anyway():
    ordinary, root = [list(bound_kernel_files("/empty", is_root=is_root)) for is_root in (False, True)]
    assert len(ordinary) < len(root)
    assert ordinary[:3] == root[:3] == ["--ro-bind", "/proc/sys", "/proc/sys"]


def test_a_system_without_sys_has_none(monkeypatch):
    monkeypatch.setattr(os.path, "isdir", lambda _: False)
    assert "/sys" not in list(bound_kernel_files("/empty", is_root=False))
