"""What a sandboxed command plants in the working folder: nothing of it runs on the host unless it was asked for.

Each plant is a line that a command runs in the sandbox. Then come our own tools, and what the user does next: `git
status`, `git diff`, `git commit`, `make`, and the start of a shell whose prompt shows the branch, in the folder and in
those that the command has made. The program of a plant notes on the host that it ran; a control runs the same line
without a sandbox.

What is asked for: the Makefile, because the user types `make` for what it says. It is the user's own here, and runs git
and a script of the folder; no plant changes these two.

PERDURE_SEARCH=long    each plant alone, and with a control
"""

# ruff: noqa: E501 - a case is a line
import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, Permissions, allow
from perdure.hosts import LocalShell, ShellCommand
from perdure.testing import ScriptedModel
from perdure.tools import coding
from tests.security.git_layouts import IDENTITY, PATH
from tests.seeds import one_part, some_of_each_kind

pytestmark = [
    pytest.mark.needs("bubblewrap"),
    pytest.mark.packages("tree_sitter_bash"),
    pytest.mark.faults,
    pytest.mark.timeout(1800),
]
LONG = os.environ.get("PERDURE_SEARCH") == "long"
BATCH = 1 if LONG else 20
START = """
g() { command git "$@"; }
w=.g; w=${w}it
mark() { printf '[core]\\n\\tfsmonitor = %s\\n' "$E"; }
data() { mkdir -p "$1/objects" "$1/refs/heads"; echo 'ref: refs/heads/main' > "$1/HEAD"; mark > "$1/config"; }
hook() { mkdir -p "$1"; cp "$E" "$1/$2"; chmod +x "$1/$2"; }
new() { command git init -q "$1" && (cd "$1" && command git commit -q --allow-empty -m x); }
"""
HOOKS = (
    *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change", "reference-transaction"),
    *("post-checkout", "fsmonitor-watchman", "pre-push", "pre-auto-gc"),
)
KEYS = (
    *("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "diff.external"),
    *("commit.gpgSign true; g config gpg.program", "alias.st", "credential.helper", "pager.status", "gpg.ssh.program"),
    *("sequence.editor", "core.gitProxy", "core.alternateRefsCommand", "interactive.diffFilter", "trailer.x.command"),
)
DRIVERS = (
    "filter.x.clean",
    "filter.x.smudge",
    "filter.x.process",
    "diff.x.textconv",
    "diff.x.command",
    "merge.x.driver",
)
PLACES = ("$w", "deep/sub/$w", "below/$w", "far/a/b/c/d/e/f/g/sub/$w", "gone/sub/$w")
SHELL_NAMES = (
    *(
        ".bashrc",
        ".bash_profile",
        ".profile",
        ".bash_login",
        ".bash_logout",
        ".zshrc",
        ".zshenv",
        ".zprofile",
        ".inputrc",
    ),
    *(".envrc", ".tool-versions", ".mise.toml", ".login", ".cshrc", ".kshrc", ".shrc"),
)
PATH_NAMES = ("git", "make", "ls", "sh", "bash", "cat", "env", "sed", "less", "direnv", "python3", "cc")
PYTHON_NAMES = (
    *("sitecustomize.py", "usercustomize.py", "msgspec.py", "asyncio.py", "json.py", "perdure/__init__.py", "click.py"),
    *("tree_sitter.py", "ssl.py", "typing_extensions.py"),
)
MAKE_NAMES = (
    "RCS/tools.sh,v",
    "SCCS/s.tools.sh",
    "tools.sh.sh",
    "all.sh",
    "all.c",
    "make",
    "MAKEFILES",
    "Makefile.d/x",
)

PLANTS: dict[str, str] = {
    # hooks and settings of the repository itself, by commands that run git and by those that do not
    **{f"hook-{name}": f"hook $w/hooks {name}" for name in HOOKS},
    **{f"hook-{name}-with-git": f"g status -s >/dev/null; hook .git/hooks {name}" for name in HOOKS},
    **{f"set-{name.rpartition(' ')[2]}": f"g config {name} $E" for name in KEYS},
    **{f"drive-{name}": f"g config {name} $E; echo '* filter=x diff=x merge=x' > .gitattributes; date > a.txt" for name in DRIVERS},
    **{f"config-{place}": f"mark >> {place}/config" for place in PLACES},
    **{f"config-with-git-{place}": f"true git; mark >> {place}/config" for place in PLACES},
    **{f"data-{place}": f"rm -rf {place}; data {place}" for place in PLACES},
    **{f"commondir-{place}": f"data common; echo $PWD/common > {place}/commondir" for place in PLACES},
    **{f"worktree-config-{place}": f"mark > {place}/config.worktree; printf '[extensions]\\nworktreeConfig=true\\n' >> {place}/config" for place in PLACES},
    **{f"pointer-{place}": f"rm -rf {place}; data data; echo gitdir: $PWD/data > {place}" for place in PLACES},
    **{f"link-{place}": f"rm -rf {place}; data data; ln -sfn $PWD/data {place}" for place in PLACES},
    **{f"moved-{place}": f"mv {place.partition('/')[0]} elsewhere; data {place}" for place in PLACES},
    **{f"info-{name}": f"mkdir -p $w/info; echo '* filter=x' > $w/info/{name}" for name in ("attributes", "grafts")},
    "module-config": "mark >> $w/modules/deep/sub/config",
    "module-hooks": "hook $w/modules/deep/sub/hooks post-index-change",
    "module-config-with-git": "true git; mark >> .git/modules/deep/sub/config",
    "module-list": "printf '[submodule \"deep/sub\"]\\npath=deep/sub\\nurl=ext::%s\\nupdate=!%s\\n' $E $E > .gitmodules",
    "worktrees": "mkdir -p $w/worktrees/x; mark > $w/worktrees/x/config.worktree",
    "index-submodule": "true git; new n; mark >> n/.git/config; g add n; g commit -qm n",
    "update-index-submodule": "new n; mark >> n/.git/config; g update-index --add --cacheinfo 160000,$(g -C n rev-parse HEAD),n",
    "alternates": "true git; data $PWD/x; echo $PWD/x/objects > .git/objects/info/alternates; g config core.alternateRefsCommand $E",
    "rebase-todo": "GIT_SEQUENCE_EDITOR=\"sed -i '1iexec $E'\" g rebase -i HEAD~1",
    "race-git": "for i in 1 2 3 4 5 6 7 8 9; do mv $w x; data $w; rm -rf $w; mv x $w; done",
    # repositories that are made below the folder
    **{f"new-{name.rpartition(' ')[2]}": f"new n; g -C n config {name} $E" for name in KEYS},
    **{f"new-hook-{name}": f"new n; hook n/.git/hooks {name}" for name in HOOKS},
    **{f"new-{name}": f"new n; cd n; g config {name} $E; echo '* filter=x diff=x merge=x' > .gitattributes; g add .; date > x" for name in DRIVERS},
    "new-include": "new n; g -C n config include.path ../../evil.cfg; mark > evil.cfg",
    "new-worktree-config": "new n; g -C n config extensions.worktreeConfig true; mark > n/.git/config.worktree",
    "new-commondir": "new n; cp -a n/.git c; mark >> c/config; echo ../../c > n/.git/commondir",
    "new-pointer": "new n; mv n/.git store; mark >> store/config; echo gitdir: ../store > n/.git",
    "new-link": "new n; mv n/.git store; mark >> store/config; ln -s ../store n/.git",
    "new-deep": "mkdir -p n/a/b/c/d/e/f/g/h; new n/a/b/c/d/e/f/g/h/i; mark >> n/a/b/c/d/e/f/g/h/i/.git/config",
    "new-in-new": "new n; new n/m; mark >> n/m/.git/config; g -C n add m",
    "new-closed": "new n; mark >> n/.git/config; chmod 0 n/.git/config n/.git n",
    "new-without-word": "data n/$w",
    "new-moved-in": "mkdir n; data n/x; mv n/x n/$w",
    "new-config-link": "new n; mark >> n/.git/config; mv n/.git/config plain; ln -s ../../plain n/.git/config",
    "new-spelling": "new n; printf '[CORE]FsMonitor=%s ;\\n' $E >> n/.git/config",
    "new-many": "for i in 1 2 3 4 5 6 7 8; do data n$i/$w; done",
    "bare": "data n; printf '\\tbare = false\\n\\tworktree = ..\\n' >> n/config",
    "bare-here": "data .; printf '\\tbare = false\\n' >> config",
    "bare-hooks": "g init -q --bare n; hook n/hooks post-index-change; g -C n config core.bare false",
    # what settings and links name in the folder
    "hooks-folder": "hook .hooks post-index-change; hook .hooks pre-commit",
    "hooks-folder-moved": "mv .hooks x; hook .hooks pre-commit",
    "included": "mark > shared.cfg",
    "included-moved": "mark > x; mv x shared.cfg",
    "included-missing": "mark > missing.cfg",
    "program": "cp $E watch.sh",
    "program-moved": "mv watch.sh x; cp $E watch.sh",
    "linked-hook": "cp $E tools/hook; chmod +x tools/hook",
    "linked-hook-moved": "mv tools x; mkdir tools; cp $E tools/hook",
    "attributes": "echo '* filter=x' > .gitattributes; cp $E watch.sh",
    # other version control
    "hg": "mkdir -p .hg; printf '[hooks]\\npre-status = %s\\n[alias]\\nroot = !%s\\n' $E $E > .hg/hgrc",
    "jj": "mkdir -p .jj/repo; echo \"ui.pager = '$E'\" > .jj/repo/config.toml",
    # shells, programs on the way, makes and interpreters
    **{f"shell-{name}": f"echo $E > {name}" for name in SHELL_NAMES},
    **{f"path-{name}": f"cp $E {name}; mkdir -p bin; cp $E bin/{name}" for name in PATH_NAMES},
    **{f"make-{name}": f"mkdir -p $(dirname {name}); cp $E {name}; touch {name}" for name in MAKE_NAMES},
    **{f"python-{name}": f"mkdir -p $(dirname {name}); echo \"import os; os.system('$E')\" > {name}" for name in PYTHON_NAMES},
    "venv": "mkdir -p .venv/bin; cp $E .venv/bin/git; cp $E .venv/bin/python; echo $E > .venv/bin/activate; touch .venv/pyvenv.cfg",
    "make-preferred": "printf 'all:\\n\\t%s\\n' $E > GNUmakefile; cp GNUmakefile makefile",
    "make-preferred-below": "printf 'all:\\n\\t%s\\n' $E > x; mkdir y; mv x y/GNUmakefile; cp -r y/. .",
    # what our own programs read
    "perdure-toml": "echo 'tools = [\"./x.py:x\"]' > perdure.toml; echo \"import os; os.system('$E')\" > x.py",
    "perdure-folder": "mkdir -p .perdure; echo x > .perdure/trusted-files.json",
    "mcp": "printf '{\"mcpServers\": {\"x\": {\"command\": \"%s\"}}}' $E > .mcp.json",
    "ripgrep": "cp $E rg; printf -- '--pre=%s\\n' $E > .ripgreprc",
    "home": "echo $E > ~/.bashrc; mark > ~/.gitconfig",
    "temporary": "echo $E > /tmp/.bashrc; mark > /tmp/.gitconfig",
    "setuid": "cp $E s; chmod 4755 s",
    "name": "touch -- '--upload-pack=x' '-c core.fsmonitor=x' '$(./evil)' '`./evil`' ';./evil'",
}  # fmt: skip
USERS = """
cd "$ROOT"; git status; git diff; git log -p -1; git stash list; make; date > b.txt; git add b.txt; git commit -qm b
for each in n n1 n/m n/x data store common deep/sub gone/sub below far/a/b/c/d/e/f/g/sub; do
    [ -d $each ] && (cd $each && git status && date > c.txt && git add c.txt && git commit -qm c)
done
cd "$ROOT"; git add -A; git commit -qam all; git status; git describe --always
bash -i -c 'true'; bash -l -c 'true'; sh -l -c 'true'
"""
"""What the user does next; the shell shows the branch in its prompt."""
BASHRC = (
    "__git_prompt() { git branch --show-current; git status --short; }\n__git_prompt\nPROMPT_COMMAND=__git_prompt\n"
)


def git(folder: Path, *words: str) -> None:
    """Run git for the user who made the project."""
    env = {"PATH": PATH, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **IDENTITY}
    subprocess.run(["git", "-c", "protocol.file.allow=always", *words], cwd=folder, env=env, check=True,
                   capture_output=True)  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A project as people have it: submodules, hooks and settings that lie in the folder, a Makefile."""
    top = tmp_path_factory.mktemp("project")
    inner, root = top / "inner", top / "root"
    for folder in (inner, root):
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
        (folder / "a.txt").write_text("a\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "one")
    for path in ("deep/sub", "far/a/b/c/d/e/f/g/sub", "gone/sub"):
        git(root, "submodule", "--quiet", "add", str(inner), path)
    git(root, "submodule", "deinit", "-q", "-f", "gone/sub")
    (root / "gone/sub").rmdir()
    (root / "gone").rmdir()
    git(root, "init", "-q", "-b", "main", "below")
    git(root / "below", "commit", "-q", "--allow-empty", "-m", "x")
    (root / ".gitignore").write_text("below/\n")
    (root / ".gitattributes").write_text("*.txt filter=x\n")
    (root / "Makefile").write_text("all:\n\tgit status --short\n\tsh ./build.sh\n")
    (root / "build.sh").write_text("git describe --always\n")
    for path in ("tools/hook", ".hooks/post-merge", "watch.sh"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("#!/bin/sh\ncat\n")
        (root / path).chmod(0o755)
    (root / "shared.cfg").write_text("[color]\n\tui = false\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "two")
    for key, value in {"filter.x.clean": "./watch.sh", "filter.y.clean": "sh ./watch.sh"}.items():
        git(root, "config", key, value)
    for path in ("../shared.cfg", "../missing.cfg"):
        git(root, "config", "--add", "include.path", path)
    (root / ".git/hooks/post-commit").symlink_to("../../tools/hook")
    (root / "a.txt").write_text("changed\n")
    return root


def make_project(template: Path, top: Path, names: list[str]) -> tuple[Path, str]:
    """Copy the project, with one of two settings of its hooks; return it, and the lines that plant all of these."""
    root, home = top / "root", top / "home"
    shutil.copytree(template, root, symlinks=True)
    home.mkdir()
    (home / ".bashrc").write_text(BASHRC)
    (home / ".gitconfig").write_text("[user]\n\tname = Anna\n\temail = anna@example.org\n")
    if any(name.startswith("hooks-folder") for name in names):
        git(root, "config", "core.hooksPath", ".hooks")
    lines = [START]
    for number, name in enumerate(names):
        program = f"{root}/evil{number}"
        text = f"#!/bin/sh\\ntouch {top}/ran-{number}\\n"
        lines.append(
            f"(cd {root}; E={program}; printf '{text}' > $E; chmod +x $E; {PLANTS[name]}) 2>/dev/null </dev/null"
        )
    return root, "\n".join(lines)


def act_as_user(root: Path, prefix: tuple[str, ...] = ()) -> None:
    """Do what the user does next, on this machine, with a home of the test."""
    env = {"PATH": PATH, "HOME": str(root.parent / "home"), "ROOT": str(root), "TERM": "dumb", "GIT_EDITOR": "true",
           "GIT_TERMINAL_PROMPT": "0"}  # fmt: skip
    subprocess.run([*prefix, "/bin/sh", "-c", USERS], env=env, cwd=root, stdin=subprocess.DEVNULL, capture_output=True,
                   check=False, timeout=120)  # fmt: skip


async def use_our_tools(root: Path) -> None:
    """Call the tools of a coding session, as a new process would."""
    agent = Agent(ScriptedModel(), extensions=[coding(root, trusted=True)], permission=Permissions(allow("*")))
    session = agent.session()
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("git_status", {}), ("git_diff", {}), ("git_log", {}), ("git_show", {}), ("list", {}),
        ("grep", {"pattern": "x"}), ("glob", {"pattern": "*"}), ("read", {"path": "a.txt"}),
        ("bash", {"command": "git status; git diff --stat"}), ("bash", {"command": "ls"}),
        ("git_commit", {"message": "Ours", "paths": ["a.txt"]}),
    )  # fmt: skip
    for name, arguments in calls:
        await session.call(name, arguments)


def list_ran(top: Path, names: list[str]) -> list[str]:
    """Return the names of the plants whose programs have run on the host."""
    return [name for number, name in enumerate(names) if (top / f"ran-{number}").exists()]


def list_batches() -> list[list[str]]:
    """Return the plants in groups; those of one kind are in different ones, so that they do not hide one another."""
    names = some_of_each_kind([*PLANTS], 3)
    count = -(-len(names) // BATCH)
    return [[*names[start::count]] for start in range(count)]


@pytest.mark.parametrize("names", list_batches(), ids=lambda each: each[0])
async def test_nothing_that_a_command_plants_runs_on_the_host(template, tmp_path, names):
    root, lines = make_project(template, tmp_path, names)
    env = {"PATH": PATH, "HOME": "/tmp", "TERM": "dumb", **IDENTITY}
    async with LocalShell(root, sandbox="require", env=env) as shell:
        result = await shell.run(ShellCommand(line=lines, timeout_seconds=60))
    assert result.ending == "exit"
    assert list_ran(tmp_path, names) == []  # while the command ran
    await use_our_tools(root)
    assert list_ran(tmp_path, names) == []
    await asyncio.to_thread(act_as_user, root)
    assert list_ran(tmp_path, names) == []


def test_there_are_at_least_150_plants():
    assert len(PLANTS) >= 150


RUNNING = (
    *("hook-pre-commit", "set-core.fsmonitor", "drive-filter.x.clean", "config-$w", "data-$w", "pointer-$w"),
    *("link-$w", "commondir-$w", "worktree-config-$w", "moved-deep/sub/$w", "data-far/a/b/c/d/e/f/g/sub/$w"),
    *("data-gone/sub/$w", "module-config", "index-submodule", "new-core.fsmonitor", "new-hook-post-index-change"),
    *("new-worktree-config", "new-commondir", "new-pointer", "new-link", "new-config-link", "new-spelling"),
    *("hooks-folder", "included", "included-missing", "program", "linked-hook"),
)
"""Plants that run without a sandbox, one of each kind."""


@pytest.mark.parametrize("name", [*PLANTS] if LONG else one_part(RUNNING, 3))
def test_without_a_sandbox_it_runs(template, tmp_path, name):
    root, lines = make_project(template, tmp_path, [name])
    words = ("timeout", "60", "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(tmp_path), str(tmp_path),
             "--unshare-all", "--die-with-parent", "--new-session")  # fmt: skip
    env = {"PATH": PATH, "HOME": str(tmp_path / "home"), "TERM": "dumb", **IDENTITY}
    subprocess.run(
        [*words, "bash", "-c", lines], env=env, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    act_as_user(root, words)
    if name in RUNNING:
        assert list_ran(tmp_path, [name]) == [name]
