"""Secrets of a working folder stay hidden, whatever a command does to the folders around them."""

import os
from pathlib import Path

import pytest

from perdure._tools.sandbox import bubblewrap
from perdure._tools.sandbox.covers import add_remembered_secrets
from perdure.hosts import LocalShell, ShellCommand

WAYS = {
    "crowd": ("for each in $(seq 30); do : > !$each; done", "cat .env conf/.env secrets/x"),
    "crowded folder": ("mkdir !; for each in $(seq 30); do : > !/$each; done", "cat conf/.env"),
    "further down": ("mkdir -p x/y; mv conf x/y", "cat x/y/conf/.env"),
    "exchanged": ("mkdir new; mv conf new/conf; mv new conf; echo > conf/.env", "cat conf/conf/.env"),
    "link": ("mkdir -p x/y; mv conf x/y; ln -s x/y/conf plain", "cat plain/.env"),
}


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("way", WAYS)
async def test_a_command_brings_no_secret_to_light_for_the_next_one(tmp_path: Path, monkeypatch, way):
    monkeypatch.setattr(bubblewrap, "_MOST_ENTRIES", 20)
    for path in (".env", "conf/.env", "secrets/x"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("SECRET")
    first, second = WAYS[way]
    async with LocalShell(tmp_path, sandbox="require") as shell:
        for line in (first, second, "mkdir -p z; mv x z", f"{second}; cat z/x/y/conf/.env"):
            result = await shell.run(ShellCommand(line=line, timeout_seconds=20))
            assert "SECRET" not in str(result.stdout)


def test_what_the_user_removes_or_replaces_is_forgotten(tmp_path: Path) -> None:
    root, first = str(tmp_path), tmp_path / "a/.env"
    first.parent.mkdir()
    first.write_text("x")
    assert add_remembered_secrets(root, [str(first)]) == [str(first)]
    inode = first.stat().st_ino
    first.rename(tmp_path / "plain")
    assert add_remembered_secrets(root, []) == []
    assert (tmp_path / "plain").stat().st_ino == inode  # as a new file may have it
    assert add_remembered_secrets(root, []) == []
    first.write_text("y")
    assert add_remembered_secrets(root, [str(first)]) == [str(first)]
    (tmp_path / "new").write_text("z")
    os.replace(tmp_path / "new", first)  # noqa: PTH105 - as editors do
    assert add_remembered_secrets(root, []) == [str(first)]
    first.unlink()
    first.symlink_to("elsewhere")
    assert add_remembered_secrets(root, []) == []
