"""Known attacks on file, search and git tools of agents, each by its number, through the tools of `coding`."""

# ruff: noqa: E501 - a case is a line
import os
import stat
import subprocess
from pathlib import Path

import pytest

from perdure import Agent, Permissions, allow
from perdure._io.files import atomic
from perdure.permissions import allow_all
from perdure.testing import ScriptedModel
from perdure.tools import coding


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project, a secret beside it, and another project whose name begins like that of the first."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, text in {
        "root/boat.py": "boat\n", "root-private/secret.txt": "SECRET boat\n", "home/.ssh/id_rsa": "SECRET\n",
        "home/.kube/config": "SECRET\n", "home/.bashrc": "\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def open_session(place, permission=allow_all):
    return Agent(ScriptedModel(), extensions=[coding(place / "root")], permission=permission).session()


def git(root, *words) -> str:
    person = {"NAME": "A", "EMAIL": "a@example.org"}
    env = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in person.items()}
    done = subprocess.run(
        ["git", *words], cwd=root, env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return done.stdout


def snapshot(folder) -> dict[str, bytes]:
    return {
        str(each): each.read_bytes() for each in Path(folder).rglob("*") if each.is_file() and not each.is_symlink()
    }


async def try_everything(session, path) -> list:
    """Call every tool that takes a path with this one, and return the results."""
    calls = [
        ("read", {"path": path}), ("list", {"path": path}), ("glob", {"pattern": "*", "path": path}),
        ("grep", {"pattern": "SECRET|boat", "path": path}), ("write", {"path": path, "content": "x", "overwrite": True}),
        ("edit", {"path": path, "old_string": "SECRET", "new_string": "x"}), ("git_diff", {"path": path}),
        ("git_log", {"path": path}), ("git_show", {"path": path}), ("git_commit", {"message": "m", "paths": [path]}),
    ]  # fmt: skip
    return [await session.call(name, arguments) for name, arguments in calls]


@pytest.mark.parametrize(
    "path", ["../root-private/secret.txt", "{place}/root-private/secret.txt", "../root-private", "{place}/root-private"]
)
async def test_cve_2025_53110_a_folder_whose_name_begins_like_the_allowed_one(place, path):
    """The reference file server compared paths as text, so that `/root-private` was inside `/root`."""
    before = snapshot(place)
    for result in await try_everything(open_session(place), path.format(place=place)):
        assert result.status != "ok"
        assert "SECRET" not in result.text
    assert snapshot(place) == before


@pytest.mark.parametrize(
    "leads_to",
    ["../root-private/secret.txt", "../root-private", "../home/.ssh/id_rsa", "/etc/passwd", "/proc/self/root/etc"],
)
async def test_cve_2025_53109_a_link_inside_that_leads_outside(place, leads_to):
    """The reference file server checked the parent folder when resolving a link failed, and then followed the link."""
    (place / "root" / "link").symlink_to(leads_to)
    before = snapshot(place)
    for path in ("link", "link/secret.txt", "./link/../link", "link/passwd"):
        for result in await try_everything(open_session(place), path):
            assert result.status != "ok", result.text
            assert "SECRET" not in result.text
    found = await open_session(place).call("grep", {"pattern": "SECRET"})
    assert found.text == "(no matches)"
    assert snapshot(place) == before


async def test_cve_2026_39861_a_link_that_is_made_before_the_file_is_written(place):
    """A sandboxed process made a link to a place outside, and the tool, which was not in the sandbox, wrote through it."""
    session = open_session(place)
    (place / "root" / "out").symlink_to(place / "home")
    (place / "root" / "new.txt").symlink_to(place / "home" / "created.txt")
    (place / "root" / "deep").mkdir()
    (place / "root" / "deep" / "up").symlink_to("../../home")
    for path in ("out/.bashrc", "out/created.txt", "new.txt", "deep/up/created.txt"):
        result = await session.call("write", {"path": path, "content": "evil", "overwrite": True})
        assert "outside" in result.text
    assert not (place / "home" / "created.txt").exists()
    assert (place / "home" / ".bashrc").read_text() == "\n"


@pytest.mark.parametrize(
    "path",
    [
        "perdure.toml",
        ".perdure/trusted.json",
        ".perdure/skills/x/SKILL.md",
        ".mcp.json",
        "sub/perdure.toml",
        "PERDURE.TOML",
        ".Perdure/x",
        "perdure.toml ",
        "per\u200bdure.toml",
    ],
)
async def test_cve_2026_25725_configuration_that_does_not_exist_yet(place, path):
    """The settings of a project were protected only once they existed, so that a tool could create them, with hooks."""
    session = open_session(place, Permissions(allow()))
    before = snapshot(place)
    for name, arguments in (
        ("write", {"path": path, "content": "x"}),
        ("git_commit", {"message": "m", "paths": [path]}),
    ):
        result = await session.call(name, arguments)
        assert result.status != "ok"
        assert "never written" in result.text
    assert snapshot(place) == before


@pytest.mark.parametrize("path", [".mcp.json", ".cursor/mcp.json", ".vscode/settings.json", ".claude/settings.json"])
async def test_cve_2025_54135_a_file_that_starts_programs_is_not_written_without_a_person(place, path):
    """Text that the model had read made it create the file of servers of its own editor, which started them."""
    session = open_session(place, Permissions(allow()))
    result = await session.call("write", {"path": path, "content": '{"mcpServers": {}}'})
    assert result.status != "ok"
    assert not (place / "root" / path).exists()


@pytest.mark.parametrize(
    "path", ["../home/.kube/config", "{place}/home/.kube/config", "link/config", "../root-private/secret.txt"]
)
async def test_cve_2026_27735_a_commit_that_reads_files_outside_the_repository(place, path):
    """`git_add` of the reference git server took paths outside the repository, and `git_show` then showed them."""
    root = place / "root"
    git(root, "init", "-q")
    (root / "link").symlink_to(place / "home" / ".kube")
    result = await open_session(place).call("git_commit", {"message": "m", "paths": [path.format(place=place)]})
    assert result.status != "ok"
    assert git(root, "ls-files") == ""


async def test_cve_2025_68143_no_tool_makes_or_chooses_a_repository(place):
    """`git_init` of the reference git server made any folder a repository; others took the path of one."""
    session = open_session(place)
    tools = [each for each in coding(place / "root").tools if each.name.startswith("git_")]
    assert {each.name for each in tools} == {"git_status", "git_diff", "git_log", "git_show", "git_commit"}
    parameters = {name for each in tools for name in each.parameters.json_schema["properties"]}
    assert parameters == {"base", "path", "paths", "staged", "limit", "revision", "message"}
    assert "no git repository" in (await session.call("git_status", {})).text


@pytest.mark.parametrize(
    "value",
    ["--output={place}/written", "-O{place}/written", "--no-index", "--ext-diff", "HEAD --output={place}/written"],
)
async def test_cve_2025_68144_options_in_place_of_revisions_and_paths(place, value):
    """`git_diff` of the reference git server passed a revision on as it came: `--output=` overwrote any file."""
    root, value = place / "root", value.format(place=place)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "m"]):
        git(root, *words)
    session = open_session(place)
    for name, key in (
        ("git_diff", "base"),
        ("git_log", "base"),
        ("git_show", "revision"),
        ("git_diff", "path"),
        ("git_show", "path"),
    ):
        result = await session.call(name, {key: value})
        assert key == "path" or "no revision" in result.text
    assert not (place / "written").exists()


async def test_cve_2025_68145_a_path_that_is_not_checked_against_the_repository(place):
    """With `--repository` the reference git server still took the path of another one in each call."""
    result = await open_session(place).call("git_log", {"repo_path": str(place / "root-private")})
    assert "invalid arguments" in result.text


async def test_cve_2026_46406_temporary_files_have_names_that_nobody_can_guess(place, monkeypatch):
    """Files with fixed names in a shared folder let another user put a link there first."""
    monkeypatch.setattr(atomic, "_UNNAMED", 0)  # as where every file has a name
    seen: list[tuple[str, int]] = []
    really_open = os.open

    def watch(path, flags, *arguments, **options):
        if flags & os.O_CREAT:
            seen.append((str(path), flags))
        return really_open(path, flags, *arguments, **options)

    session = open_session(place)  # its shell has locks in a folder of this user's own
    monkeypatch.setattr(os, "open", watch)
    for _ in range(2):
        await session.call("write", {"path": "same.txt", "content": "x"})
        (place / "root" / "same.txt").unlink()
    assert len({path for path, _ in seen}) == len(seen) == 2
    assert all(flags & os.O_EXCL and flags & os.O_NOFOLLOW for _, flags in seen)
    assert not [each for each in (place / "root").iterdir() if each.name.endswith(".tmp")]


@pytest.mark.skipif(not atomic._UNNAMED, reason="the system cannot open files without a name")
async def test_cve_2026_46406_a_file_without_a_name_gets_one_that_nobody_can_guess(place, monkeypatch):
    seen: list[str] = []
    really_link = os.link

    def watch(source, name, **options):
        seen.append(name)
        return really_link(source, name, **options)

    monkeypatch.setattr(os, "link", watch)
    session = open_session(place)
    for content in ("one", "two", "three"):
        await session.call("write", {"path": "same.txt", "content": content, "overwrite": True})
    assert (place / "root" / "same.txt").read_text() == "three"
    assert seen[0] == "same.txt"  # a free name is taken at once
    assert len({*seen}) == 3
    assert not [each for each in (place / "root").iterdir() if each.name.endswith(".tmp")]


async def test_a_pipe_or_a_device_does_not_stall_a_tool(place):
    os.mkfifo(place / "root" / "pipe")
    session = open_session(place)
    for result in await try_everything(session, "pipe"):
        assert "boat" not in result.text
    assert stat.S_ISFIFO((place / "root" / "pipe").stat().st_mode)


async def test_the_model_cannot_shorten_the_list_of_secrets(place):
    """No parameter of a tool takes a list of names, an option or a pattern that would show them."""
    (place / "root" / ".env").write_text("SECRET\n")
    session = open_session(place)
    for name, arguments in (
        ("grep", {"pattern": "SECRET", "glob": ".env"}), ("grep", {"pattern": "SECRET", "glob": "**/.*"}), ("glob", {"pattern": ".env"}),
        ("grep", {"pattern": "SECRET", "path": ".env"}), ("read", {"path": ".env"}), ("read", {"path": "./.env"}), ("list", {}),
    ):  # fmt: skip
        result = await session.call(name, arguments)
        assert "SECRET" not in result.text.replace("'SECRET'", "")
        assert ".env\t" not in result.text
