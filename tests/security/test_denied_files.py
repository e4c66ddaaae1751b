"""Files that a rule denies, and files whose names mean secrets, are shown by no command and by no tool unasked."""

# ruff: noqa: E501 - a case is a line
import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, Grant, Permissions, allow, ask, deny
from perdure.hosts import LocalShell
from perdure.permissions import Grants, Rule, Verdict, allow_all, command, path
from perdure.testing import ScriptedModel, call
from perdure.tools import code_execution_tool, coding, exec_tool, shell_tools
from tests.seeds import one_part

pytestmark = pytest.mark.needs("bubblewrap")

SECONDS = 60.0
DENIED, SECRET, KEY = "TOPSECRET", "SERVERKEY", "KEYBYTES"


def git(folder: Path, *words: str) -> str:
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Anna",
        "GIT_AUTHOR_EMAIL": "anna@example.org", "GIT_COMMITTER_NAME": "Anna", "GIT_COMMITTER_EMAIL": "anna@example.org",
    }  # fmt: skip
    return subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    """A copy of the repository for each test: to make it takes git ten times as long."""
    return shutil.copytree(repository, tmp_path / "project", symlinks=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a folder that rules deny, keys, a secret far down, and links; everything is changed since."""
    root = tmp_path_factory.mktemp("denied") / "project"
    for name, text in {
        "src/x.py": "def foo(): pass",
        "private/plan.txt": DENIED,
        "keys/a.key2": KEY,
        "a/b/c/server.pem": SECRET,
        ".env": SECRET,
        "a/.env": SECRET,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    (root / "pub").symlink_to("private")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-f", ".")
    git(root, "commit", "-q", "-m", "All")
    (root / "src/x.py").write_text("def foo(): return 1\n")
    git(root, "commit", "-q", "-a", "-m", "Source")
    for name, text in {"private/plan.txt": DENIED, "keys/a.key2": KEY, "a/b/c/server.pem": SECRET}.items():
        with (root / name).open("a") as opened:
            opened.write(f"{text} again\n")
    return root


async def run_line(project: Path, line: str, *rules: Rule) -> tuple[str, str]:
    """Run a line by `bash`, with nobody to ask; return the status and the text of its result."""
    async with asyncio.timeout(SECONDS), LocalShell(project, sandbox="require") as shell:
        model = ScriptedModel(call("bash", command=line), "Done.")
        outcome = await Agent(model, tools=shell_tools(shell), permission=Permissions(*rules)).run("Go.")
    (result,) = outcome.new_messages[2].tool_results
    return str(result.status), result.text


RULES = [
    [],
    [allow("bash")],
    [allow("*")],
    [allow("bash", target=command(each)) for each in ("git", "grep", "cat", "awk", "sed", "dd", "diff", "head")],
]
READING = [
    *("cat private/plan.txt", "cat pri*/plan.txt", "cat pub/plan.txt", "cat ./private/../private/plan.txt"),
    *("cat keys/*", "cat keys/a.ke?2", "cat keys/a.[k]ey2", "cat keys/a.ke''y2", "cat $(echo keys/a.key2)"),
    *("cd private && cat plan.txt", "cd keys && cat a.key2", "cat < private/plan.txt", "tail -n +1 *"),
    *("grep -r . .", "grep -rh '' keys", "grep -R . .", "grep -r --exclude-dir=.git . .", "rg .", "rg -uu .", "rg -L ."),
    *("grep --recursive . .", "grep -r .", "diff src private", "diff -r src keys", "grep --color=never -r . keys"),
    *("find . -name '*.key2' -exec cat {} +", "find . -name '*.key2' -exec cat '{}' ';'", "sort private/plan.txt"),
    *("git grep .", "git diff", "git diff HEAD", "git show HEAD~1", "git log -p", "git log -U1", "git diff --cached HEAD~1"),
    *("git log -S plan --oneline", "git log -G '^a' --name-only", "git diff --stat -G . HEAD~1"),
    *("git stash show -p", "git show HEAD~1:private/plan.txt", "git cat-file -p HEAD:private/plan.txt"),
    *("git blame private/plan.txt", "git diff --word-diff", "git log --patch -n 2", "git show --stat -p HEAD~1"),
    *("git diff -- .", "git diff -- private", "git show HEAD~1 -- keys", "git --no-pager diff"),
    *("git show $(git rev-parse HEAD:private/plan.txt)", "git status -v", "cat src/x.py; grep -r . ."),
    *("git -C . show HEAD~1", "git -c x.y=z diff", "git fast-export HEAD", "git commit --dry-run -v -a", "git add -p"),
    *("awk 1 pub/plan.txt", "awk 1 ./pub/plan.txt", "sed --expression= pub/plan.txt", "dd if=pub/plan.txt"),
    *("awk 1 private/plan.txt", "sed '' keys/a.key2", "head -c 100 pub/plan.txt", "ls | xargs cat"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(RULES)), ids=["no-rule", "bash", "all", "by-name"])
async def test_no_command_shows_a_file_that_a_rule_denies(project, number):
    denials, rules = [deny(target=path("private/**")), deny(target=path("**/*.key2"))], RULES[number]
    shown = []
    for line in one_part([*READING[number:], *READING[:number]], len(RULES)):  # each line with at least one of them
        _, text = await run_line(project, line, *denials, *rules)
        shown += [line] if DENIED in text or KEY in text else []
    assert shown == []


async def test_a_file_is_not_shown_by_the_hash_of_its_contents(project):
    blob = git(project, "rev-parse", "HEAD:private/plan.txt").strip()
    secret = git(project, "rev-parse", "HEAD:a/b/c/server.pem").strip()
    tree = git(project, "rev-parse", "HEAD:private").strip()
    for rules in ([], [deny(target=path("private/**")), allow("*")]):
        for line in (
            *(f"git show {blob}", f"git cat-file -p {blob}", f"git cat-file blob {blob}"),
            *(f"git diff {blob} {secret}", f"git show {secret}"),
        ):
            status, text = await run_line(project, line, *rules)
            assert (status, "there is no one to ask" in text) == ("denied", True)
    assert (await run_line(project, f"git show {tree}"))[0] == "denied"


async def test_code_may_read_a_denied_path_and_so_asks(project):
    async with LocalShell(project, sandbox="require") as shell:
        gate = Permissions(deny(target=path("private/**")), allow("*"))
        session = Agent(ScriptedModel(), tools=[code_execution_tool(shell)], permission=gate).session()
        result = await session.call("code_execution", {"language": "bash", "code": "cat private/plan.txt"})
    assert (result.status, DENIED in result.text) == ("denied", False)


async def test_no_unasked_command_shows_a_file_whose_name_means_secrets(project):
    shown = []
    for line in one_part(READING, 2):
        _, text = await run_line(project, line)
        shown += [line] if SECRET in text else []
    assert shown == []


@pytest.mark.parametrize("denials", [[], [deny(target=path("private/**"))]], ids=["no-rule", "denied-folder"])
@pytest.mark.parametrize(
    "line",
    [
        *("git status", "git status -s", "ls", "ls -la src", "cat src/x.py", "grep -rn foo src/", "grep foo src/x.py"),
        *("rg foo src", "git log -3 --oneline", "git show HEAD", "git show HEAD --stat", "git log -p -n 1"),
        *("git diff HEAD~1 -- src", "git diff HEAD~1 HEAD", "git diff HEAD~1..HEAD -- src", "git show HEAD:src/x.py"),
        *("git blame src/x.py", "find src -name x.py", "wc -l src/x.py", "diff -r src src", "tree src", "du src"),
        *("cd src && cat x.py", "git diff -- src", "git cat-file -t HEAD", "echo private", "ls src | head"),
    ],
)  # fmt: skip
async def test_everyday_commands_pass_silently_where_nothing_else_can_be_shown(project, line, denials):
    if line == "echo private" and denials:
        pytest.skip("it names the folder")
    async with LocalShell(project, sandbox="require") as shell:
        session = Agent(ScriptedModel(), tools=shell_tools(shell), permission=Permissions(*denials)).session()
        explanation = await session.explain("bash", {"command": line})
    assert (explanation.verdict, line) == ("allow", line)
    assert "only reads" in explanation.why


async def test_what_the_sandbox_hides_does_not_stand_in_the_way(project):
    (project / "a/b/c/server.pem").unlink()
    assert (await run_line(project, "grep -r . a"))[0] == "denied"  # a/.env is in the repository, and so it is shown
    git(project, "rm", "-q", "--cached", "a/.env")
    (project / ".gitignore").write_text(".env\n")
    for _ in range(2):
        status, text = await run_line(project, "grep -r . a")
        assert status != "denied"
        assert SECRET not in text
        (project / "a/b/c/id_rsa").write_text(SECRET)  # at any depth


async def test_a_program_that_is_allowed_by_its_name_may_read_what_it_likes(project):
    async with LocalShell(project, sandbox="require") as shell:
        denial = deny(target=path("private/**"))
        for rules, expected in (
            ([allow("bash")], "deny"),
            ([allow("bash", target=command("make"))], "allow"),
            ([allow("bash", target=command("git")), allow("bash")], "deny"),
        ):
            gate = Permissions(denial, *rules)
            session = Agent(ScriptedModel(), tools=shell_tools(shell), permission=gate).session()
            line = "git grep x" if "git" in str(rules) else "make all"
            assert (await session.explain("bash", {"command": line})).verdict == expected
        execute = Agent(
            ScriptedModel(), tools=[exec_tool(shell, ["grep"])], permission=Permissions(denial, allow("*"))
        ).session()
        given = {"argv": ["grep", "-r", ".", ".."], "folder": "src"}
        assert (await execute.explain("shell_exec", given)).verdict == "deny"
        assert (await execute.explain("shell_exec", {"argv": ["grep", "foo", "src/x.py"]})).verdict == "allow"


# -- the tools for files -----------------------------------------------------------------------------------------------


async def use_tool(project: Path, name: str, gate: Any, **arguments: Any) -> str:
    session = Agent(ScriptedModel(), extensions=[coding(project)], permission=gate).session()
    return (await session.call(name, arguments)).text


TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("grep", {"pattern": "."}),
    ("grep", {"pattern": ".", "output": "files"}),
    ("grep", {"pattern": ".", "output": "counts"}),
    ("glob", {"pattern": "**/*"}),
    ("git_diff", {}),
    ("git_diff", {"base": "HEAD~1"}),
    ("git_show", {"revision": "HEAD~1"}),
    ("list", {"path": "."}),
]


@pytest.mark.parametrize(("name", "arguments"), TOOLS, ids=str)
@pytest.mark.parametrize("restrict", [deny, ask])
async def test_tools_leave_out_what_a_rule_denies_or_asks_about(project, name, arguments, restrict):
    everything = await use_tool(project, name, Permissions(allow("*")), **arguments)
    gate = Permissions(restrict(target=path("private/**")), restrict(target="**/*.key2"), allow("*"))
    text = await use_tool(project, name, gate, **arguments)
    assert not [each for each in (DENIED, KEY, "plan.txt", "a.key2", "private") if each in text]
    if name != "list":
        assert "src/x.py" in text or "src/x.py" not in everything


async def test_a_link_in_place_of_a_denied_folder_does_not_show_what_was_committed(project):
    gate = Permissions(deny(target=path("private/**")), allow("*"))
    git(project, "stash")
    git(project, "rm", "-rq", "private")
    (project / "private").symlink_to("src")
    assert DENIED not in await use_tool(project, "git_show", gate, revision="HEAD~1")
    _, text = await run_line(project, "git show HEAD~1", deny(target=path("private/**")), allow("*"))
    assert DENIED not in text


async def test_what_a_rule_has_asked_about_as_a_whole_is_shown(project):
    asked: list[str] = []

    def person(requests: Any) -> Any:

        asked.extend([each.tool for each in requests])
        return [Verdict(allow=True) for _ in requests]

    gate = Permissions(ask("grep"), deny(target=path("private/**")), handler=person)
    text = await use_tool(project, "grep", gate, pattern=".")
    assert asked == ["grep"]
    assert "src/x.py" in text
    assert DENIED not in text


async def test_a_remembered_no_hides_a_path_too(project):

    gate = Permissions(
        allow("*"),
        grants=Grants([Grant("forever", allow=False, tool="grep", target=f"{project}/private/**", target_kind="path")]),
    )
    assert "private" not in await use_tool(project, "grep", gate, pattern=".")
    assert "private" in await use_tool(project, "glob", gate, pattern="**/*")


async def test_a_gate_that_is_a_function_hides_nothing(project):

    assert "private" in await use_tool(project, "grep", allow_all, pattern=".")
