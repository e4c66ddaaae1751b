"""Names that other programs trust: no tool and no command makes or changes a file with one, unless a person agrees.

Every name of the list is tried in every way that there is: by each tool that writes, and by a command, as a new file,
as a change of one that is there, by a rename, a link, a folder that is moved, and a copy.
"""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from perdure import Agent, Permissions, allow
from perdure._io.files.protected import MADE_FOLDERS, PREFERRED_NAMES, TRUSTED_NAMES, VERSION_CONTROL_SETTINGS
from perdure._tools.git import mounts, planted
from perdure.hosts import LocalShell, ShellCommand
from perdure.permissions import allow_all, later
from perdure.testing import ScriptedModel, call
from perdure.tools import (
    basic_tools,
    code_execution_tool,
    code_mode,
    coding,
    edit_tool,
    exec_tool,
    read_tool,
    shell_tools,
    write_tool,
)
from tests.seeds import one_part

SECRET = frozenset({".corepack.env", ".npmrc", ".yarnrc", ".yarnrc.yml", ".netrc", "_netrc", ".my.cnf", ".envrc"})
"""Names that also mean secrets: no tool writes them, and commands do not see them."""
NAMES = [each.replace("*", "x") for each in TRUSTED_NAMES]
FOR_COMMANDS = [*NAMES, *VERSION_CONTROL_SETTINGS]
EVERYTHING = Permissions(allow("*"))
OWN = "the user's own"
EVIL = "a command's"


def as_file(name: str) -> str:
    """Return the path of a file with a name of the list, or in a folder with it."""
    return name if Path(name).suffix else f"{name}/inside"


def list_trusted_evil(root: Path) -> list[str]:
    """Return the files below a folder that have a trusted name, and the text of a command."""
    names = {each.casefold() for each in FOR_COMMANDS}
    found: list[str] = []
    for path in root.rglob("*"):
        steps = path.relative_to(root).parts
        parts = {"/".join(steps[at : at + length]).casefold() for at in range(len(steps)) for length in (1, 2, 3)}
        if parts & names and path.is_file() and EVIL in path.read_text():
            found.append("/".join(steps))
    return found


def test_the_list_has_the_names_that_were_found_missing():
    missing = {
        "GEMINI.md", "AGENTS.override.md", ".mise.toml", ".cargo/config.toml", ".github", "SKILL.md", ".nvim.lua",
        ".envrc", ".roo", ".windsurf", "opencode.json", ".gdbinit", ".Rprofile", ".mvn", ".pnpmfile.cjs", "bunfig.toml",
    }  # fmt: skip
    assert missing <= set(TRUSTED_NAMES)


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["", "deep/er/"])
async def test_each_tool_that_writes_asks_about_each_name_whatever_the_rules_allow(tmp_path, folder):
    coder = Agent(
        ScriptedModel(), extensions=[coding(tmp_path, shell=False)], permission=Permissions(allow("*"), handler=later)
    )
    writer = Agent(ScriptedModel(), tools=basic_tools(tmp_path), permission=Permissions(allow("*"), handler=later))
    session, plain = coder.session(), writer.session()
    for name in NAMES:
        path = f"{folder}{as_file(name)}"
        for tool, arguments in (
            ("write", {"path": path, "content": "x"}),
            ("write", {"path": path.upper(), "content": "x", "overwrite": True}),
            ("edit", {"path": path, "old_string": "x", "new_string": "y"}),
        ):
            explained = await session.explain(tool, arguments)
            assert explained.verdict == "ask" or name in SECRET, path
            assert explained.verdict == "deny" or "other programs trust" in explained.why, path
        explained = await plain.explain("write_text", {"path": path, "text": "x"})
        assert explained.verdict == "ask", path
    for tool, arguments in (("write", {"path": "src/x.py", "content": "x"}), ("read", {"path": "AGENTS.md"})):
        assert (await session.explain(tool, arguments)).verdict == "allow"


async def test_the_question_says_why_and_an_answer_is_enough(tmp_path):
    made = call("write", path="GEMINI.md", content="x")
    agent = Agent(
        ScriptedModel(made, "Done."),
        extensions=[coding(tmp_path, shell=False)],
        permission=Permissions(allow("*"), handler=later),
    )
    session = agent.session()
    (question,) = (await session.run("Go.")).questions
    assert "other programs trust files like 'GEMINI.md'" in str(question.calls[0])
    await session.answer(question.ask_id, True)
    assert (await session.resume()).status == "done"
    assert (tmp_path / "GEMINI.md").read_text() == "x"


async def test_without_the_bundle_a_tool_asks_too_and_a_gate_without_rules_does_not(tmp_path):
    from perdure.hosts import LocalFiles

    files = LocalFiles(tmp_path)
    tools = [read_tool(files), write_tool(files), edit_tool(files)]
    arguments = {"path": ".mise.toml", "content": "x"}
    denied = await Agent(ScriptedModel(), tools=tools, permission=EVERYTHING).session().call("write", arguments)
    assert denied.status == "denied"
    assert "other programs trust files like '.mise.toml', and there is no one to ask" in denied.text
    assert (
        await Agent(ScriptedModel(), tools=tools, permission=allow_all).session().call("write", arguments)
    ).status == "ok"


@pytest.mark.packages("pydantic_monty")
async def test_a_program_of_the_model_gets_no_further_than_a_call(tmp_path):
    extensions = [coding(tmp_path, shell=False), code_mode()]
    session = Agent(ScriptedModel(), extensions=extensions, permission=EVERYTHING).session()
    result = await session.call("run_program", {"code": "await write(path='AGENTS.md', content='x')"})
    assert not (tmp_path / "AGENTS.md").exists(), result.text


async def test_a_small_tool_writes_no_configuration_of_the_runtime(tmp_path):
    tools = basic_tools(tmp_path)
    session = Agent(ScriptedModel(), tools=tools, permission=EVERYTHING).session()
    for path in ("perdure.toml", "sub/Perdure.TOML", "perdure.toml."):
        result = await session.call("write_text", {"path": path, "text": "x"})
        assert "never written by tools" in result.text
    assert list(tmp_path.iterdir()) == []


# -- commands ----------------------------------------------------------------------------------------------------------

sandboxed = pytest.mark.needs("bubblewrap")


async def run(root: Path, line: str):
    async with LocalShell(root, sandbox="require") as shell:
        return await shell.run(ShellCommand(line=line, timeout_seconds=60))


async def until_there(path: Path) -> None:
    """Wait until a command has made a file, for a while."""
    async with asyncio.timeout(20):
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - processes of others tell nobody what they make
            await asyncio.sleep(0.02)


WAYS = {
    "write": 'mkdir -p "$d"; echo "a command\'s" > "$p"',
    "rename": 'echo "a command\'s" > plain; mkdir -p "$d"; mv plain "$p"',
    "exchange": 'mkdir -p x/"$d"; echo "a command\'s" > x/"$p"; cp -r x/. .; rm -r x',
    "folder": 'mkdir -p away/"$d"; echo "a command\'s" > away/"$p"; mv away moved-$n',
    "hard-link": 'echo "a command\'s" > plain-$n; mkdir -p "$d"; ln plain-$n "$p"',
    "append": 'mkdir -p "$d"; echo "a command\'s" >> "$p"',
    "closed": 'mkdir -p c$n/"$d"; echo "a command\'s" > c$n/"$p"; chmod -R a-w c$n; chmod 0 c$n',
    "capitals": 'mkdir -p "$D"; echo "a command\'s" > "$P"',
    "old-times": 'mkdir -p "$d"; echo "a command\'s" > "$p"; touch -d 2001-01-01 "$p"',
}
"""What a command does with the path `$p` in the folder `$d`, or both in capitals; `$n` is the number of the name."""


def write_line(name: str, number: int, way: str) -> str:
    """Return what a command does with a name. Nothing is left to programs that the shell would start each time."""
    path, folder = as_file(name), os.path.dirname(as_file(name)) or "."  # noqa: PTH120 - the text of a line
    given = f"n={number}; p={path!r}; d={folder!r}; P={path.upper()!r}; D={folder.upper()!r}"
    return f"{{ {given}; {way}; }} 2>/dev/null"


@sandboxed
@pytest.mark.parametrize("way", WAYS)
async def test_a_command_leaves_no_file_with_such_a_name(tmp_path, way):
    first = [*WAYS].index(way)
    names = one_part([*FOR_COMMANDS[first:], *FOR_COMMANDS[:first]], 3)  # each name in some of the ways
    lines = [write_line(name, number, WAYS[way]) for number, name in enumerate(names)]
    result = await run(tmp_path, "\n".join(lines))
    assert list_trusted_evil(tmp_path) == []
    assert "other programs trust files with such names" in result.note
    assert "configure=true" in result.note


LEADING = sorted({name.rpartition("/")[0] for name in FOR_COMMANDS if "/" in name})


@sandboxed
async def test_a_command_leaves_no_link_on_the_way_to_such_a_name(tmp_path):
    (tmp_path / "tools").symlink_to("scripts")  # the user's own
    lines = [f"mkdir -p $(dirname {each}); ln -s ../x {each}" for each in LEADING if each != "tools"]
    await run(tmp_path, "\n".join(["mkdir x", *lines, "ln -s x .CARGO", "mkdir p; ln -s ../x p/tools; ln -s x plain"]))
    left = {each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*") if each.is_symlink()}
    assert {each for each in left if ".unused-" not in each} == {"tools", "plain"}


@sandboxed
async def test_what_a_link_of_the_user_leads_to_is_read_only_and_the_rest_beside_it_is_not(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/config.toml").write_text(OWN)
    (tmp_path / ".cargo").symlink_to("conf")
    result = await run(tmp_path, f'echo "{EVIL}" > conf/config.toml; rm .cargo; ln -s x .cargo; echo x > conf/other')
    assert "Read-only file system" in str(result.stderr)
    assert (tmp_path / ".cargo").readlink() == Path("conf")
    assert (tmp_path / ".cargo/config.toml").read_text() == OWN
    assert (tmp_path / "conf/other").exists()


@sandboxed
async def test_configuration_of_the_runtime_is_not_left_below_the_working_folder_either(tmp_path):
    (tmp_path / ".mcp.json").write_text(OWN)
    files = ("perdure.toml", ".mcp.json", ".MCP.json", ".perdure/skills/x/evil")
    lines = [f'mkdir -p $(dirname a/b/{each}); echo "{EVIL}" > a/b/{each}' for each in files]
    result = await run(tmp_path, "\n".join([*lines, "mkdir -p a/.perdure; echo x > a/.perdure/sessions.db"]))
    assert "a/b/perdure.toml" in result.note
    found = {each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*") if each.is_file()}
    assert {each for each in found if ".unused-" not in each} == {".mcp.json", "a/.perdure/sessions.db"}
    assert (await run(tmp_path, "ls -A")).note == ""


@sandboxed
async def test_a_command_whose_git_data_cannot_be_taken_over_leaves_none_either(tmp_path, monkeypatch):
    await run(tmp_path, "git init -q . && git -c user.name=a -c user.email=a commit -q --allow-empty -m x")
    assert (tmp_path / ".git/HEAD").exists()

    def fail(*_):
        raise RecursionError("too deep")

    monkeypatch.setattr(mounts, "take_over", fail)
    result = await run(tmp_path, f'git --version; echo "{EVIL}" > AGENTS.md')
    assert "RecursionError" in str(result.stderr)
    assert list_trusted_evil(tmp_path) == []


@sandboxed
async def test_no_file_takes_the_place_of_the_one_that_the_user_means(tmp_path):
    for group in PREFERRED_NAMES:
        for number, own in enumerate(group):
            folder = tmp_path / own
            folder.mkdir()
            (folder / own).write_text(OWN)
            lines = [f'echo "{EVIL}" > {own}/{each}' for each in group if each != own]
            result = await run(tmp_path, "\n".join(lines))
            left = {each.name for each in folder.iterdir() if ".unused-" not in each.name}
            assert left == {*group[number:]}
            assert all(f"{own}/{each}" in result.note for each in group[:number])
            result = await run(
                tmp_path,
                f'echo "{EVIL}" >> {own}/{own}; mkdir {own}/new; touch '
                + " ".join([f"{own}/new/{each}" for each in group]),
            )
            assert result.note == ""
            assert EVIL in (folder / own).read_text()


@sandboxed
async def test_a_folder_whose_clock_is_behind_has_no_new_file_with_such_a_name(tmp_path, monkeypatch):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/AGENTS.md").write_text(OWN)
    read = planted.read_file_clock_ns
    monkeypatch.setattr(mounts, "read_file_clock_ns", lambda: read() + 3600 * 10**9)
    await run(tmp_path, f'mkdir -p .vscode; for each in GEMINI.md pkg/.envrc .vscode/x; do echo "{EVIL}" > $each; done')
    assert list_trusted_evil(tmp_path) == []
    monkeypatch.setattr("perdure._tools.sandbox.trusted_files._MOST_MOUNTS", 0)
    await run(tmp_path, f'echo "{EVIL}" > pkg/AGENTS.md')
    assert list_trusted_evil(tmp_path) == []


@sandboxed
async def test_folders_that_are_too_deep_to_be_looked_at_are_told(tmp_path):
    deep = "/".join(["deeper"] * 200)
    result = await run(tmp_path, f"for each in 1 2 3 4; do mkdir -p {deep}; cd {deep}; done; echo x > AGENTS.md")
    list_and_remove(tmp_path / "deeper")
    assert "folders too deep" in result.note


@sandboxed
@pytest.mark.parametrize("way", [*WAYS, "remove"])
async def test_a_command_changes_no_file_with_such_a_name(tmp_path, way):
    names = [each for each in NAMES if each not in SECRET][::16]  # as many as are mounted
    for name in names:
        path = tmp_path / as_file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(OWN)
    ways = {**WAYS, "remove": 'rm -rf "$p"'}
    await run(tmp_path, "\n".join([write_line(name, number, ways[way]) for number, name in enumerate(names)]))
    assert [name for name in names if (tmp_path / as_file(name)).read_text() != OWN] == []
    assert list_trusted_evil(tmp_path) == []


@sandboxed
async def test_a_folder_that_takes_the_place_of_one_with_such_a_file_does_not_keep_its_own(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/AGENTS.md").write_text(OWN)
    await run(tmp_path, f'mv pkg moved; mkdir pkg; echo "{EVIL}" > pkg/AGENTS.md')
    assert list_trusted_evil(tmp_path) == []
    assert (tmp_path / "moved/AGENTS.md").read_text() == OWN


ELSEWHERE = {
    "packages": ("mkdir -p node_modules/x/d; cp evil node_modules/x/d/AGENTS.md", "mv node_modules/x/d sub"),
    "folder of packages": ("mkdir -p vendor/x; cp evil vendor/x/AGENTS.md", "mv vendor lib"),
    "first name": ("mkdir x; cp evil x/config.toml", "mv x .cargo"),
    "last name": ("mkdir -p y/x; cp evil y/x/bazel", "mv y/x tools"),
    "in the place of another": ("mkdir -p vendor/x; cp evil vendor/x/AGENTS.md", "mv pkg moved; mv vendor/x pkg"),
    "deep": ("mkdir -p vendor/a/b/c/d; cp evil vendor/a/b/c/d/AGENTS.md", "mkdir e; mv vendor/a/b e/f; touch e/f"),
    "exchanged": ("mkdir -p vendor/x pkg; cp evil vendor/x/AGENTS.md", "mv pkg y; mv vendor/x pkg; mv y vendor/x"),
}


@sandboxed
@pytest.mark.parametrize("way", ELSEWHERE)
async def test_what_an_earlier_command_has_made_under_another_name_is_not_moved_to_such_a_one(tmp_path, way):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/AGENTS.md").write_text(OWN)
    (tmp_path / "evil").write_text(EVIL)
    first, second = ELSEWHERE[way]
    await run(tmp_path, first)
    await asyncio.sleep(0.05)
    result = await run(tmp_path, second)
    assert [each for each in list_trusted_evil(tmp_path) if not set(each.split("/")) & MADE_FOLDERS] == []
    assert "other programs trust files with such names" in result.note
    assert [each for each in tmp_path.rglob("AGENTS.md") if each.read_text() == OWN] != []


@sandboxed
@pytest.mark.parametrize("name", ["AGENTS.md", ".vscode/tasks.json"])
async def test_a_file_with_a_second_name_is_not_changed_by_that_one(tmp_path, name):
    await run(tmp_path, "mkdir plain; echo harmless > plain/file; ln plain/file other")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / "plain/file").rename(tmp_path / name)  # by the user, who has read it
    await asyncio.sleep(0.05)
    assert "unused" not in (await run(tmp_path, f"cat {name}; echo > new")).note
    assert (tmp_path / name).read_text() == "harmless\n"
    note = (await run(tmp_path, f'echo "{EVIL}" > other')).note
    assert name in note
    assert list_trusted_evil(tmp_path) == []


def list_and_remove(folder):
    """Return the names of all files, and remove them; Python before 3.12, and pytest, cannot do it so far down."""
    find = ["find", str(folder), "-type", "f", "-printf", "%f\n"]
    left = subprocess.run(find, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    return left


async def test_such_a_file_is_found_below_very_many_folders(tmp_path):
    deep = "/".join(["d"] * 1500)
    await run(tmp_path, f'mkdir -p vendor/{deep}; cd vendor/{deep}; echo "{EVIL}" > AGENTS.md')
    await run(tmp_path, f'mv vendor lib; cd lib/{deep}; echo "{EVIL}" > GEMINI.md')
    left = list_and_remove(tmp_path / "lib")
    assert len(left) == 2
    assert all(".unused-" in name for name in left)


@sandboxed
async def test_a_link_with_such_a_name_stays_what_it_was(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/rules.md").write_text(OWN)
    (tmp_path / "CLAUDE.md").symlink_to("docs/rules.md")
    await run(tmp_path, f'echo "{EVIL}" > docs/rules.md; rm CLAUDE.md; echo "{EVIL}" > CLAUDE.md')
    assert (tmp_path / "CLAUDE.md").readlink() == Path("docs/rules.md")
    assert (tmp_path / "CLAUDE.md").read_text() == OWN
    await run(tmp_path, "ln -s docs GEMINI.md; ln -s docs .vscode")
    assert {each.name for each in tmp_path.iterdir()} & {"GEMINI.md", ".vscode"} == set()


@sandboxed
async def test_a_file_in_a_folder_that_was_not_mounted_leaves_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure._tools.sandbox.trusted_files._MOST_MOUNTS", 0)
    (tmp_path / ".roo/rules").mkdir(parents=True)
    (tmp_path / ".roo/rules/own.md").write_text(OWN)
    result = await run(tmp_path, f'echo "{EVIL}" > .roo/rules/evil; mkdir .roo/more; echo "{EVIL}" > .roo/more/evil')
    assert ".roo/rules/evil" in result.note
    assert sorted(each.relative_to(tmp_path).as_posix() for each in (tmp_path / ".roo").rglob("*")) == [
        ".roo/rules", ".roo/rules/own.md",
    ]  # fmt: skip


@sandboxed
async def test_a_refusal_says_what_to_do_and_a_person_can_let_a_command_do_it(tmp_path):
    (tmp_path / "AGENTS.md").write_text(OWN)
    rules = [allow("bash"), allow("bash", action="configure")]
    line = f'echo "{EVIL}" > AGENTS.md && mkdir .vscode && echo x > .vscode/tasks.json'
    async with LocalShell(tmp_path, sandbox="require") as shell:
        tools = shell_tools(shell)
        refused = (
            await Agent(ScriptedModel(), tools=tools, permission=EVERYTHING).session().call("bash", {"command": line})
        )
        assert "Read-only file system" in refused.text
        assert "configure=true" in refused.text
        asked = {"command": line, "configure": True}
        unasked = Agent(ScriptedModel(), tools=tools, permission=EVERYTHING).session()
        assert (await unasked.call("bash", asked)).status == "denied"
        agreed = await Agent(ScriptedModel(), tools=tools, permission=Permissions(*rules)).session().call("bash", asked)
        assert (agreed.status, agreed.text) == ("ok", "(no output)")
    assert (tmp_path / "AGENTS.md").read_text() == f"{EVIL}\n"
    assert (tmp_path / ".vscode/tasks.json").exists()


@sandboxed
async def test_a_branch_with_other_instructions_is_checked_out_by_a_command_that_may(tmp_path):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    env |= {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, env=env, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for branch in ("main", "other"):
        git("checkout", "-q", "-B", branch)
        (tmp_path / "AGENTS.md").write_text(branch)
        (tmp_path / ".github").mkdir(exist_ok=True)
        (tmp_path / ".github/x.yml").write_text(branch)
        git("add", ".")
        git("commit", "-qm", branch)
    rules = [allow("bash"), allow("bash", action="configure")]
    async with LocalShell(tmp_path, sandbox="require") as shell:
        session = Agent(ScriptedModel(), tools=shell_tools(shell), permission=Permissions(*rules)).session()
        refused = await session.call("bash", {"command": "git checkout main"})
        assert "configure=true" in refused.text
        assert (tmp_path / "AGENTS.md").read_text() == "other"
        agreed = await session.call("bash", {"command": "git checkout -f main", "configure": True})
        assert agreed.status == "ok", agreed.text
    assert (tmp_path / "AGENTS.md").read_text() == (tmp_path / ".github/x.yml").read_text() == "main"


@sandboxed
async def test_other_tools_that_run_programs_leave_none_either(tmp_path):
    async with LocalShell(tmp_path, sandbox="require") as shell:
        tools = [exec_tool(shell, ["cp"]), code_execution_tool(shell, {"bash": ["bash", "-s"]})]
        session = Agent(ScriptedModel(), tools=tools, permission=EVERYTHING).session()
        (tmp_path / "x").write_text(EVIL)
        for name, arguments in (
            ("shell_exec", {"argv": ["cp", "x", "GEMINI.md"]}),
            ("code_execution", {"language": "bash", "code": "cp x .cursorrules"}),
        ):
            assert "other programs trust" in (await session.call(name, arguments)).text
    assert list_trusted_evil(tmp_path) == []


@sandboxed
async def test_a_command_in_the_background_leaves_none_and_what_a_person_agreed_to_meanwhile_stays(tmp_path):
    async with LocalShell(tmp_path, sandbox="require") as shell:
        extensions = [coding(tmp_path, shell=shell_tools(shell))]
        session = Agent(ScriptedModel(), extensions=extensions, permission=allow_all).session()
        line = f'echo "{EVIL}" > GEMINI.md; until [ -e AGENTS.md ]; do sleep 0.05; done; echo x > seen; sleep 60'
        started = await session.call("bash", {"command": line, "background": True})
        await session.call("write", {"path": "AGENTS.md", "content": OWN})
        await until_there(tmp_path / "seen")
        job = started.text.split()[2].rstrip(".")
        ended = await session.call("kill_shell", {"job_id": job})
        assert "GEMINI.md" in ended.text
    assert (tmp_path / "AGENTS.md").read_text() == OWN
    assert list_trusted_evil(tmp_path) == []


@sandboxed
@pytest.mark.parametrize("age", ["new", "old"])
async def test_of_two_commands_that_run_at_once_none_hides_what_the_other_has_made(tmp_path, age):
    plant = f'mkdir -p vendor/x; echo "{EVIL}" > vendor/x/AGENTS.md'
    if age == "old":
        await run(tmp_path, plant)
    wait = "until [ -e {0} ]; do sleep 0.05; done"
    first = f"{plant if age == 'new' else 'true'}; mv vendor/x sub; touch one; {wait.format('two')}"
    second = f"mv sub vendor/sub; touch two; {wait.format('three')}; mv vendor/sub sub"
    async with LocalShell(tmp_path, sandbox="require") as shell:
        maker = await shell.start(ShellCommand(line=first, timeout_seconds=60))
        await until_there(tmp_path / "one")
        hider = await shell.start(ShellCommand(line=second, timeout_seconds=60))
        assert (await shell.poll(maker, wait_seconds=20)).exit_code == 0
        assert (tmp_path / "vendor/sub").exists()
        (tmp_path / "three").touch()
        assert (await shell.poll(hider, wait_seconds=20)).exit_code == 0
    assert list_trusted_evil(tmp_path) == []


@sandboxed
async def test_a_file_that_is_read_only_for_one_command_is_not_changed_by_another_beside_it(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/AGENTS.md").write_text(OWN)
    many = "for each in $(seq 40); do echo x > lefthook.$each; done; touch one; until [ -e two ]; do sleep 0.05; done"
    change = f'echo "{EVIL}" > pkg/AGENTS.md; touch two; until [ -e three ]; do sleep 0.05; done'
    async with LocalShell(tmp_path, sandbox="require") as shell:
        first = await shell.start(ShellCommand(line=many, timeout_seconds=60))
        await until_there(tmp_path / "one")
        second = await shell.start(ShellCommand(line=change, timeout_seconds=60))
        assert (await shell.poll(first, wait_seconds=20)).exit_code == 0
        (tmp_path / "three").touch()
        assert (await shell.poll(second, wait_seconds=20)).exit_code == 0
    assert list_trusted_evil(tmp_path) == []


@sandboxed
async def test_an_event_loop_that_is_closed_leaves_none(tmp_path):
    def interrupted():
        async def start():
            async with LocalShell(tmp_path, sandbox="require") as shell:
                await shell.start(ShellCommand(line=f'echo "{EVIL}" > GEMINI.md; echo x > seen; sleep 60'))
                await until_there(tmp_path / "seen")
                for each in asyncio.all_tasks():
                    each.cancel()

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(start())

    await asyncio.wait_for(asyncio.to_thread(interrupted), 30)
    assert list_trusted_evil(tmp_path) == []


@sandboxed
async def test_what_was_there_stays_as_it_was_and_nothing_else_appears(tmp_path):
    for path in ("AGENTS.md", ".vscode/a.json", "deep/a/b/c/d/e/f/g/AGENTS.md", "pkg/.editorconfig"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(OWN)
    before = sorted(each.relative_to(tmp_path) for each in tmp_path.rglob("*"))
    result = await run(tmp_path, "cat AGENTS.md pkg/.editorconfig; ls -A; mv deep moved; mv moved deep; chmod 755 pkg")
    assert result.note == ""
    assert str(result.stderr) == ""
    assert sorted(each.relative_to(tmp_path) for each in tmp_path.rglob("*")) == before
    listed = set(str(result.stdout).replace(OWN, "").split())
    assert listed == {"AGENTS.md", ".vscode", "deep", "pkg", ".git", ".mcp.json", ".perdure", "perdure.toml"}


@sandboxed
@pytest.mark.parametrize("folder", sorted(MADE_FOLDERS - {".git"}))
async def test_packages_that_are_installed_keep_their_files(tmp_path, folder):
    result = await run(
        tmp_path, f"mkdir -p {folder}/a/.github; echo x > {folder}/a/.github/x; echo x > {folder}/a/.editorconfig"
    )
    assert result.note == ""
    assert (tmp_path / folder / "a/.editorconfig").exists()
    assert (await run(tmp_path, f"rm -rf {folder}")).exit_code == 0
