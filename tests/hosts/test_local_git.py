"""Git of a folder: what its tools show and commit, and that the repository itself runs nothing."""

# ruff: noqa: E501 - a case is a line
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from perdure import Agent, ConfigError, Permissions, ToolError, allow, deny
from perdure._tools.git import sandbox
from perdure.hosts import LocalFiles
from perdure.permissions import allow_all, command
from perdure.testing import ScriptedModel
from perdure.tools import LocalGit, git_commit_tool, git_read_tools


def git(folder, *words, **options):
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Anna",
        "GIT_AUTHOR_EMAIL": "anna@example.org", "GIT_COMMITTER_NAME": "Anna", "GIT_COMMITTER_EMAIL": "anna@example.org",
    }  # fmt: skip
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True, **options)
    return done.stdout


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A repository to be copied: to make it takes git ten times as long."""
    root = tmp_path_factory.mktemp("template") / "root"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "boat.py").write_text("one\n")
    (root / ".env").write_text("KEY=secret\n")
    git(root, "add", "-f", ".")
    git(root, "commit", "-qm", "First boat")
    git(root, "checkout", "-qb", "topic")
    (root / "boat.py").write_text("one\ntwo\n")
    (root / ".env").write_text("KEY=secret2\n")
    git(root, "commit", "-qam", "Second boat\n\nWith a body.")
    (root / "boat.py").write_text("one\ntwo\nthree\n")
    (root / "new.txt").write_text("new\n")
    return root


@pytest.fixture
def repository(template, tmp_path, monkeypatch):
    """A repository with two commits, a branch, a change and a new file; its user has a name."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Bert\n\temail = bert@example.org\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return shutil.copytree(template, tmp_path / "root", symlinks=True)


def open_session(root, permission=allow_all):
    files = LocalFiles(root)
    backend = LocalGit(files)
    tools = [*git_read_tools(files, backend), git_commit_tool(files, backend)]
    return Agent(ScriptedModel(), tools=tools, permission=permission).session()


@pytest.mark.parametrize(
    ("tool", "arguments", "present", "absent"),
    [
        ("git_status", {}, ["## topic", " M boat.py", "?? new.txt"], [".env"]),
        ("git_diff", {}, ["+three"], ["+two", "secret"]),
        ("git_diff", {"staged": True}, ["(no changes)"], []),
        ("git_diff", {"base": "main"}, ["+two"], ["+three", "secret"]),
        ("git_diff", {"base": "main", "path": "new.txt"}, ["(no changes)"], ["two"]),
        ("git_diff", {"path": "boat.py"}, ["+three"], []),
        ("git_log", {}, ["Bert" and "Anna", "Second boat", "    With a body.", "First boat"], ["secret"]),
        ("git_log", {"base": "main"}, ["Second boat"], ["First"]),
        ("git_log", {"limit": 1}, ["Second boat"], ["First"]),
        ("git_log", {"path": "new.txt"}, ["(no commits)"], []),
        ("git_show", {}, ["Second boat", "+two"], ["secret"]),
        ("git_show", {"revision": "HEAD~1"}, ["First boat", "+one"], ["secret"]),
        ("git_show", {"revision": "main"}, ["First boat"], ["two"]),
    ],
)
async def test_the_repository_is_shown_without_secrets(repository, tool, arguments, present, absent):
    result = await open_session(repository).call(tool, arguments)
    assert result.status == "ok", result.text
    assert all(each in result.text for each in present), result.text
    assert not any(each in result.text for each in absent), result.text


async def test_named_files_are_committed_and_no_others(repository):
    (repository / "other.txt").write_text("other\n")
    git(repository, "add", "other.txt")
    session = open_session(repository)
    result = await session.call(
        "git_commit", {"message": "Third boat\n\n- with quotes \"'", "paths": ["boat.py", "new.txt"]}
    )
    assert result.status == "ok", result.text
    assert git(repository, "log", "-1", "--format=%an|%B").strip() == "Bert|Third boat\n\n- with quotes \"'"
    assert git(repository, "show", "--name-only", "--format=", "HEAD").split() == ["boat.py", "new.txt"]
    assert git(repository, "status", "--short") == "A  other.txt\n"
    (repository / "new.txt").unlink()
    assert (await session.call("git_commit", {"message": "Gone", "paths": ["new.txt"]})).status == "ok"
    assert "new.txt" not in git(repository, "ls-files")


async def test_a_commit_is_answered_with_its_branch_id_summary_and_size(repository):
    session = open_session(repository)
    result = await session.call("git_commit", {"message": "Third boat\n\nBody.", "paths": ["boat.py", "new.txt"]})
    commit = git(repository, "log", "-1", "--format=%h").strip()
    first, second, *more = result.text.splitlines()
    assert first.endswith(f" {commit}] Third boat")
    assert first.startswith(f"[{git(repository, 'branch', '--show-current').strip()} ")
    assert second.startswith(" 2 files changed, ")
    assert more == [" create mode 100644 new.txt"]


async def test_a_commit_without_changes_says_so_and_names_no_other_files(repository):
    session = open_session(repository)
    (repository / ".env").write_text("SECRET=1")
    assert (await session.call("git_commit", {"message": "m", "paths": ["boat.py"]})).status == "ok"
    result = await session.call("git_commit", {"message": "m", "paths": ["boat.py"]})
    assert (result.status, result.text) == (
        "error", "there is nothing to commit: the named files are as in the last commit",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("git_diff", {"base": "--output=/tmp/x"}, "no revision"),
        ("git_diff", {"base": "-O/tmp/x"}, "no revision"),
        ("git_diff", {"base": "main..HEAD"}, "no revision"),
        ("git_diff", {"base": "a b"}, "no revision"),
        ("git_diff", {"base": "main\n--output=x"}, "no revision"),
        ("git_diff", {"base": "missing"}, "git failed"),
        ("git_diff", {"base": "main", "staged": True}, "not both"),
        ("git_diff", {"path": "../x"}, "outside"),
        ("git_diff", {"path": "/etc/passwd"}, "outside"),
        ("git_diff", {"path": ".env"}, "secrets"),
        ("git_diff", {"path": ""}, "outside"),
        ("git_log", {"limit": 0}, "from 1 to 200"),
        ("git_log", {"base": "$(id)"}, "no revision"),
        ("git_show", {"revision": "HEAD:.env"}, "no revision"),
        ("git_show", {"revision": ":.env"}, "no revision"),
        ("git_show", {"revision": "-p"}, "no revision"),
        ("git_show", {"revision": ""}, "no revision"),
        ("git_show", {"revision": "HEAD^{tree}"}, "git failed"),
        ("git_commit", {"message": " ", "paths": ["boat.py"]}, "give a message"),
        ("git_commit", {"message": "m", "paths": []}, "name the files"),
        ("git_commit", {"message": "m", "paths": [".env"]}, "secrets"),
        ("git_commit", {"message": "m", "paths": ["../../home/.gitconfig"]}, "outside"),
        ("git_commit", {"message": "m", "paths": ["perdure.toml"]}, "never written"),
        ("git_commit", {"message": "m", "paths": [".git/config"]}, "never written"),
        ("git_commit", {"message": "m", "paths": ["missing.txt"]}, "git failed"),
        ("git_commit", {"message": "m", "paths": [":(top)boat.py"]}, "git failed"),
        ("git_commit", {"message": "m", "paths": ["*.py"]}, "git failed"),
    ],
)
async def test_what_is_no_revision_or_file_inside_is_refused(repository, tool, arguments, words):
    before = git(repository, "rev-parse", "HEAD")
    result = await open_session(repository).call(tool, arguments)
    assert result.status != "ok"
    assert words in result.text, result.text
    assert git(repository, "rev-parse", "HEAD") == before


async def test_rules_match_the_command_that_is_run(repository):
    session = open_session(repository, Permissions(allow("git_commit", target=command("git commit --only"))))
    assert (await session.call("git_commit", {"message": "m", "paths": ["boat.py"]})).status == "ok"
    session = open_session(repository, Permissions(deny("git_*", target=command("git log"))))
    assert "denied by the rule" in (await session.call("git_log", {})).text
    assert (
        await open_session(repository, None).call("git_commit", {"message": "m", "paths": ["new.txt"]})
    ).status == "denied"


TRAP = "#!/bin/sh\ntouch {mark}\nexit 0\n"
SETTINGS = [
    "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "core.alternateRefsCommand",
    "diff.external", "diff.evil.command", "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge",
    "filter.evil.process", "gpg.program", "gpg.ssh.program", "merge.evil.driver", "pager.diff", "pager.log",
    "pager.status", "pager.show", "sequence.editor", "interactive.diffFilter", "credential.helper",
    "trailer.evil.cmd", "trailer.evil.command", "core.gitProxy", "filter.a.b.clean", "filter.A B.clean",
]  # fmt: skip


def arm(root, trap):
    """Let everything in a repository that can name a program name this one."""
    for name in SETTINGS:
        git(root, "config", name, str(trap))
    for name, value in {
        "commit.gpgSign": "true", "log.showSignature": "true", "filter.evil.required": "true", "core.hooksPath": str(trap.parent),
        "trailer.evil.key": "X-By", "alias.status": f"!{trap}", "alias.diff": f"!{trap}",
    }.items():  # fmt: skip
        git(root, "config", name, value)
    (root / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n*.txt filter=a.b\n*.md filter=A\\ B\n")
    for hook in (
        "pre-commit",
        "prepare-commit-msg",
        "commit-msg",
        "post-commit",
        "post-index-change",
        "reference-transaction",
        "fsmonitor-watchman",
        "post-checkout",
        "pre-auto-gc",
    ):
        for folder in (root / ".git" / "hooks", trap.parent):
            folder.mkdir(exist_ok=True)
            (folder / hook).write_text(trap.read_text())
            (folder / hook).chmod(0o755)


async def use_every_tool(root):
    session = open_session(root)
    for tool, arguments in (
        ("git_status", {}), ("git_diff", {}), ("git_diff", {"staged": True}), ("git_diff", {"base": "main"}),
        ("git_log", {}), ("git_log", {"base": "main"}), ("git_show", {}),
        ("git_commit", {"message": "m", "paths": ["boat.py", "new.txt"]}), ("git_status", {}), ("git_show", {}),
    ):  # fmt: skip
        result = await session.call(tool, arguments)
        assert result.status == "ok", (tool, arguments, result.text)


@pytest.fixture
def trap(tmp_path):
    place = tmp_path / "trap" / "trap.sh"
    place.parent.mkdir()
    place.write_text(TRAP.format(mark=tmp_path / "sprung"))
    place.chmod(0o755)
    return place


async def test_nothing_that_a_repository_brings_is_run(repository, tmp_path, trap):
    arm(repository, trap)
    await use_every_tool(repository)
    assert not (tmp_path / "sprung").exists()


def test_the_trap_springs_for_plain_git(repository, tmp_path, trap):
    """Else the test above would show nothing."""
    arm(repository, trap)
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=False)
    assert (tmp_path / "sprung").exists()


async def test_a_submodule_runs_nothing_either(repository, tmp_path, trap):
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "a").write_text("a\n")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner")
    git(repository, "commit", "-qm", "submodule")
    git(repository / "inner", "config", "core.fsmonitor", str(trap))
    (repository / "inner" / "a").write_text("changed\n")
    (tmp_path / "sprung").unlink(missing_ok=True)
    await use_every_tool(repository)
    assert not (tmp_path / "sprung").exists()


async def test_a_git_folder_that_leads_elsewhere_is_not_used(repository, tmp_path):
    victim = tmp_path / "victim"
    repository.rename(victim)
    for make in (
        lambda root: (root / ".git").symlink_to(victim / ".git"),
        lambda root: (root / ".git").write_text(f"gitdir: {victim / '.git'}\n"),
        lambda root: (root / ".git").write_text("nonsense"),
        lambda root: (root / ".git").write_bytes(b"\xff\xfe"),
        lambda root: ((root / ".git").mkdir(), (root / ".git" / "commondir").write_text(str(victim / ".git"))),
    ):
        root = Path(tempfile.mkdtemp(dir=tmp_path))
        make(root)
        result = await open_session(root).call("git_log", {})
        assert "is not used" in result.text, result.text


async def test_a_setting_that_moves_the_work_tree_is_ignored(repository, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "boat.py").write_text("of another\n")
    git(repository, "config", "core.worktree", str(tmp_path / "elsewhere"))
    result = await open_session(repository).call("git_diff", {})
    assert "+three" in result.text
    assert "of another" not in result.text


async def test_a_work_tree_of_a_repository_is_used(repository, tmp_path):
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"), "main")
    result = await open_session(tmp_path / "tree").call("git_log", {})
    assert "First boat" in result.text


async def test_a_folder_inside_a_repository_sees_only_itself(repository):
    (repository / "sub").mkdir()
    (repository / "sub" / "x.txt").write_text("x\n")
    git(repository, "add", "sub")
    result = await open_session(repository / "sub").call("git_status", {})
    assert "A  x.txt" in result.text
    assert "boat.py" not in result.text
    diff = await open_session(repository / "sub").call("git_diff", {})
    assert "three" not in diff.text


async def test_a_folder_without_a_repository_says_so(tmp_path):
    result = await open_session(tmp_path).call("git_status", {})
    assert "in no git repository" in result.text


async def test_long_output_is_cut(repository):
    (repository / "boat.py").write_text("x" * 300_000 + "\n")
    result = await open_session(repository).call("git_diff", {})
    assert "[cut off after 102,400 bytes" in result.text


def test_git_inside_the_folder_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert LocalGit(LocalFiles(tmp_path))._program != str(tmp_path / "git")
    monkeypatch.setattr(sandbox, "find_system_program", lambda _: None)
    with pytest.raises(ConfigError, match="install git"):
        LocalGit(LocalFiles(tmp_path))
    with pytest.raises(ConfigError, match="give LocalFiles"):
        LocalGit("folder")  # type: ignore[arg-type]


def test_only_the_commands_of_the_tools_are_run(repository):
    backend = LocalGit(LocalFiles(repository))
    for words in ([], ["push", "--"], ["status"], ["config", "--list", "--"]):
        with pytest.raises(ToolError, match="not one of the commands"):
            backend.run_git(words)


def test_a_command_that_takes_too_long_is_stopped(repository):
    with pytest.raises(ToolError, match="stopped after"):
        LocalGit(LocalFiles(repository), max_seconds=0.0).run_git(["status", "--", "."])


def test_the_files_that_a_command_would_show_are_listed(repository):
    listing = LocalGit(LocalFiles(repository)).list_shown_paths
    assert listing("diff", [], [], []) == ["boat.py"]
    assert listing("show", [], ["HEAD"], []) is not None
    everything = listing("log", ["-p"], [], [])
    assert everything is not None
    assert {".env", "boat.py"} <= {*everything}
    assert listing("log", ["-p"], [], ["boat.py"]) == ["boat.py"]
    assert listing("diff", [], ["boat.py"], []) == ["boat.py"]
    blob = git(repository, "rev-parse", "HEAD:boat.py").strip()
    for revisions in ([blob], ["missing"], ["HEAD:boat.py"], ["HEAD^{tree}"], ["HEAD..missing"]):
        assert listing("show", [], revisions, []) is None
    assert listing("diff", ["-L1,2:boat.py"], [], []) is None


def test_options_that_show_other_files_than_are_listed_are_not_known(repository):
    (repository / ".env").rename(repository / "renamed.txt")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "renamed")
    listing = LocalGit(LocalFiles(repository)).list_shown_paths
    assert "similarity index" in git(repository, "show", "--diff-filter=R", "HEAD")  # of what was .env
    for name in ("show", "log", "diff"):
        for option in ("--diff-filter=R", "--diff-filter=A"):
            assert listing(name, ["-p", option], ["HEAD"], []) is None
    assert listing("diff", ["--all"], ["HEAD~1", "HEAD"], []) is None
    assert listing("log", ["-p", "--all"], [], []) is not None


def test_no_setting_of_the_user_leaves_files_out_of_the_list(repository):
    (repository.parent / "home" / ".gitconfig").write_text("[diff]\n\trelative = true\n[log]\n\tshowRoot = false\n")
    found = LocalGit(LocalFiles(repository)).list_shown_paths("log", ["-p"], [], [])
    assert found is not None
    assert ".env" in found


def test_files_outside_the_working_folder_are_not_listed(repository):
    (repository / "below").mkdir()
    (repository / "below" / "x").write_text("x")
    git(repository, "add", ".")
    listing = LocalGit(LocalFiles(repository / "below")).list_shown_paths
    assert listing("diff", ["--cached"], [], ["."]) == ["x"]
    assert listing("log", ["-p"], [], []) is None


async def test_a_driver_with_an_odd_name_does_not_run(repository, tmp_path):
    trap = tmp_path / "trapped"
    git(repository, "config", "filter.a=b.clean", f"touch {trap}; cat")
    (repository / ".gitattributes").write_text("* filter=a=b\n")
    result = await open_session(repository).call("git_diff", {})
    assert "+three" in result.text
    assert not trap.exists()


@pytest.mark.parametrize("content", [b"gitdir: ../none\n", b"gitdir: \xff\xfe\n", b""])
async def test_a_file_that_leads_to_no_repository_is_not_used(tmp_path, content):
    (tmp_path / ".git").write_bytes(content)
    result = await open_session(tmp_path).call("git_status", {})
    assert result.text == "the file .git leads to another repository, and is not used"


async def test_a_configuration_that_is_too_large_is_not_used(repository):
    with (repository / ".git" / "config").open("a") as file:
        file.write("".join([f"[section{number}]\n\tname{'x' * 60} = 1\n" for number in range(18_000)]))
    result = await open_session(repository).call("git_status", {})
    assert result.text.startswith(".git/config is too large: ")


def test_a_branch_is_checked_out_in_a_work_tree_of_its_own(repository, tmp_path):
    backend = LocalGit(LocalFiles(repository))
    assert (backend.find_work_tree(), backend.read_branch()) == (str(repository), "topic")
    backend.add_worktree(str(tmp_path / "new"), "fresh")
    assert git(tmp_path / "new", "log", "--format=%s").split("\n")[0] == "Second boat"
    assert git(repository, "branch", "--list", "fresh").strip("+ \n") == "fresh"
    backend.add_worktree(str(tmp_path / "known"), "main")
    assert (tmp_path / "known" / "boat.py").read_text() == "one\n"
    inside = LocalGit(LocalFiles(tmp_path / "new"))
    assert (inside.find_work_tree(), inside.read_branch()) == (str(tmp_path / "new"), "fresh")
    with pytest.raises(ToolError, match=r"^the work tree for 'main' cannot be made: "):
        backend.add_worktree(str(tmp_path / "again"), "main")
    git(repository, "checkout", "-q", "--detach")
    assert backend.read_branch() == ""


def test_a_folder_in_no_repository_has_no_work_tree(tmp_path):
    with pytest.raises(ToolError, match=r"^the working folder is in no git repository$"):
        LocalGit(LocalFiles(tmp_path)).find_work_tree()


async def test_a_work_tree_that_its_repository_does_not_know_is_not_used(repository, tmp_path):
    LocalGit(LocalFiles(repository)).add_worktree(str(tmp_path / "new"), "fresh")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / ".git").write_bytes((tmp_path / "new" / ".git").read_bytes())
    result = await open_session(copy).call("git_status", {})
    assert result.text == "the file .git leads to another repository, and is not used"
