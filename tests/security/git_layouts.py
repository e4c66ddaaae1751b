"""Repositories that bring a program: a table of layouts, each with a plain git command that really runs it.

A layout is built by a shell script in a copy of a repository with two commits, a branch `side` and a change. `$MARK` is
the program, which notes that it ran; `$W` is the working folder, `$TOP` the folder above it.
"""

# ruff: noqa: E501, Q003 - a case is a line
import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final, NamedTuple

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
IDENTITY: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Anna"), ("EMAIL", "anna@example.org"))
}
START: Final = """
cfg() { git config "$@"; }
mark() { printf '[core]\\n\\tfsmonitor = %s\\n' "$MARK"; }
drive() { printf '*.txt filter=x diff=x merge=x\\n' > .gitattributes; }
hook() { mkdir -p "$1"; cp evil "$1/$2"; chmod +x "$1/$2"; }
module() {
    git init -q "$1"; echo m > "$1/m.txt"; git -C "$1" add .; git -C "$1" commit -qm M
    git add "$1" 2>/dev/null; git commit -qm Module; echo n > "$1/m.txt"
}
"""


class Layout(NamedTuple):
    """A repository that brings a program, and a plain command that runs it."""

    name: str
    build: str
    trigger: str = "git status"
    folder: str = "repo"
    """The working folder of the agent, below the folder of the layout."""
    race: str = ""
    """What is repeated all the time while the tools run: `mv`, `cp`, `rm` and `ln`, for a symbolic link."""


LAYOUTS: Final = (
    # monitors, by every way to say it
    Layout("fsmonitor", "cfg core.fsmonitor $MARK"),
    Layout("fsmonitor-relative", "cfg core.fsmonitor ./evil"),
    Layout("fsmonitor-spelling", """printf '[CORE]FsMonitor="%s" ; x\\n' $MARK >> .git/config"""),
    Layout("fsmonitor-continued", """printf '[core]\\n\\tfsmonitor = \\\\\\n%s\\n' $MARK >> .git/config"""),
    Layout("fsmonitor-crlf", """printf '[core]\\r\\n\\tfsmonitor = %s\\r\\n' $MARK >> .git/config"""),
    Layout("config-link", "mv .git/config plain.cfg; mark >> plain.cfg; ln -s ../plain.cfg .git/config"),
    Layout("worktree-config", "cfg extensions.worktreeConfig true; mark > .git/config.worktree"),
    Layout("include", "cfg include.path ../evil.cfg; mark > evil.cfg"),
    Layout("include-absolute", "cfg include.path $TOP/evil.cfg; mark > $TOP/evil.cfg"),
    Layout("include-chain", "cfg include.path a.cfg; printf '[include]\\npath=b.cfg\\n' > .git/a.cfg; mark > .git/b.cfg"),
    Layout("include-if-gitdir", "cfg 'includeIf.gitdir:**/.git.path' e.cfg; mark > .git/e.cfg"),
    Layout("include-if-branch", "cfg includeIf.onbranch:main.path e.cfg; mark > .git/e.cfg"),
    Layout(
        "include-if-remote",
        "cfg remote.o.url https://example.org/x; cfg 'includeIf.hasconfig:remote.*.url:https://**.path' e.cfg;"
        " mark > .git/e.cfg",
    ),
    Layout("sparse", "git sparse-checkout set --no-cone '/*'; mark >> .git/config"),
    Layout("split-index", "git update-index --split-index; mark >> .git/config"),
    Layout("sha256", "rm -rf .git; git init -q --object-format=sha256; git add .; git commit -qm S; mark >> .git/config"),
    Layout("worktree-elsewhere", "cfg core.worktree ../../repo; mark >> .git/config"),
    # filters and drivers
    Layout("filter-clean", "drive; cfg filter.x.clean $MARK", "git add a.txt"),
    Layout("filter-smudge", "drive; cfg filter.x.smudge $MARK", "rm a.txt; git checkout -q -- a.txt"),
    Layout("filter-process", "drive; cfg filter.x.process $MARK", "git add a.txt"),
    Layout("filter-required", "drive; cfg filter.x.clean $MARK; cfg filter.x.required true", "git diff"),
    Layout("filter-relative", "drive; cfg filter.x.clean 'sh evil'", "git add a.txt"),
    Layout(
        "filter-worktree-config",
        "drive; cfg extensions.worktreeConfig true;"
        " printf '[filter \"x\"]\\nclean=%s\\n' $MARK > .git/config.worktree",
        "git add a.txt",
    ),
    Layout("attributes-info", "echo '*.txt filter=x' > .git/info/attributes; cfg filter.x.clean $MARK", "git add a.txt"),
    Layout(
        "attributes-file",
        "echo '*.txt filter=x' > at; cfg core.attributesFile at; cfg filter.x.clean $MARK",
        "git add a.txt",
    ),
    Layout(
        "attributes-committed",
        "drive; git add .gitattributes; git commit -qm At; rm .gitattributes; cfg filter.x.clean $MARK",
        "git add a.txt",
    ),
    Layout("textconv", "drive; cfg diff.x.textconv $MARK", "git diff"),
    Layout("textconv-cached", "drive; cfg diff.x.textconv $MARK; cfg diff.x.cacheTextconv true", "git log -p"),
    Layout("textconv-blame", "drive; cfg diff.x.textconv $MARK", "git blame a.txt"),
    Layout("diff-driver", "drive; cfg diff.x.command $MARK", "git diff"),
    Layout("diff-external", "cfg diff.external $MARK", "git diff"),
    Layout("merge-driver", "drive; cfg merge.x.driver $MARK; git checkout -q -- a.txt", "git merge -q side -m x"),
    Layout("difftool", "cfg diff.tool x; cfg difftool.x.cmd $MARK", "git difftool -y"),
    # hooks
    *[
        Layout(f"hook-{name}", f"hook .git/hooks {name}", trigger)
        for name, trigger in (
            ("pre-commit", "git commit -q --allow-empty -m x"),
            ("prepare-commit-msg", "git commit -q --allow-empty -m x"),
            ("commit-msg", "git commit -q --allow-empty -m x"),
            ("post-commit", "git commit -q --allow-empty -m x"),
            ("reference-transaction", "git commit -q --allow-empty -m x"),
            ("post-index-change", "git add a.txt"),
            ("post-checkout", "git checkout -q -- a.txt"),
        )
    ],
    Layout("hooks-path", "cfg core.hooksPath hooks; hook hooks pre-commit", "git commit -q --allow-empty -m x"),
    Layout("hooks-path-absolute", "cfg core.hooksPath $TOP/h; hook $TOP/h post-index-change", "git add a.txt"),
    Layout(
        "hooks-link", "rm -rf .git/hooks; ln -s ../hooks .git/hooks; hook hooks pre-commit", "git commit -qm x --allow-empty"
    ),
    Layout("hook-link", "mkdir -p .git/hooks; ln -s ../../evil .git/hooks/post-commit", "git commit -qm x --allow-empty"),
    Layout("hooks-template", "mkdir -p t/hooks; hook t/hooks post-commit; cfg init.templateDir $W/t; cp t/hooks/* .git/hooks",
           "git commit -qm x --allow-empty"),
    # programs of commands
    Layout("pager", "cfg core.pager $MARK", "script -qec 'git log' /dev/null"),
    Layout("pager-of-status", "cfg pager.status $MARK", "script -qec 'git status' /dev/null"),
    Layout("editor", "cfg core.editor $MARK", "git commit --allow-empty"),
    Layout("sequence-editor", "cfg sequence.editor $MARK; git stash -q", "git rebase -i HEAD~1"),
    Layout("alias", "cfg alias.st '!./evil'", "git st"),
    Layout("trailer", "cfg trailer.x.command $MARK; cfg trailer.x.key X", "echo | git interpret-trailers"),
    Layout("gpg-sign", "cfg commit.gpgSign true; cfg gpg.program $MARK", "git commit -q --allow-empty -m x"),
    Layout("ssh-sign", "cfg commit.gpgSign true; cfg gpg.format ssh; cfg gpg.ssh.program $MARK; cfg user.signingKey k",
           "git commit -q --allow-empty -m x"),
    Layout(
        "gpg-verify",
        """{ echo "tree $(git write-tree)"; echo 'author A <a@b> 1 +0000'; echo 'committer A <a@b> 1 +0000'
        echo 'gpgsig -----BEGIN PGP SIGNATURE-----'; echo ' x'; echo ' -----END PGP SIGNATURE-----'; echo; echo m; } > c
        git update-ref refs/heads/main $(git hash-object -w -t commit c); cfg log.showSignature true
        cfg gpg.program $MARK""",
        "git log",
    ),
    Layout("rebase-todo",
           "git stash -q; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~1 2>/dev/null;"
           " echo \"exec $MARK\" > .git/rebase-merge/git-rebase-todo", "git rebase --continue"),
    # remotes and what is fetched from them
    Layout("credential-helper", "cfg credential.helper '!./evil'",
           "printf 'protocol=https\\nhost=example.org\\n\\n' | git credential fill"),
    Layout("askpass", "cfg core.askPass $MARK",
           "printf 'protocol=https\\nhost=example.org\\n\\n' | setsid -w git credential fill"),
    Layout("ssh-command", "cfg core.sshCommand $MARK; git remote add origin ssh://h/x", "git fetch"),
    Layout("git-proxy", "cfg core.gitProxy $MARK; git remote add origin git://h/x", "git fetch"),
    Layout("upload-pack", "git remote add origin $TOP; cfg remote.origin.uploadpack $MARK", "git fetch"),
    Layout("receive-pack", "git remote add origin $TOP; cfg remote.origin.receivepack $MARK", "git push origin main"),
    Layout("ext-remote", 'cfg protocol.ext.allow always; git remote add origin "ext::$MARK %S"', "git fetch"),
    Layout(
        "lazy-fetch",
        """git remote add origin $TOP; cfg remote.origin.uploadpack $MARK; cfg remote.origin.promisor true
        cfg extensions.partialClone origin; cfg core.repositoryFormatVersion 1
        b=$(git rev-parse HEAD:a.txt); rm -f .git/objects/$(echo $b | cut -c1-2)/$(echo $b | cut -c3-)""",
        "git show HEAD",
    ),
    Layout(
        "alternates",
        "cp -a .git $TOP/other; echo $TOP/other/objects > .git/objects/info/alternates; cfg core.alternateRefsCommand $MARK",
        "git rev-list --alternate-refs --count",
    ),
    # data that lie elsewhere
    Layout("commondir", "cp -a .git common; mark >> common/config; echo ../common > .git/commondir"),
    Layout("commondir-outside", "cp -a .git $TOP/c; mark >> $TOP/c/config; echo $TOP/c > .git/commondir"),
    Layout("gitfile", "mv .git data; mark >> data/config; echo 'gitdir: data' > .git"),
    Layout("gitfile-outside", "mv .git $TOP/data; mark >> $TOP/data/config; echo \"gitdir: $TOP/data\" > .git"),
    Layout("git-link", "mv .git data; mark >> data/config; ln -s data .git"),
    Layout("git-link-outside", "mv .git $TOP/data; mark >> $TOP/data/config; ln -s $TOP/data .git"),
    Layout(
        "forged-worktree",
        "mkdir -p store/worktrees; cp -a .git/. store; mv .git store/worktrees/x; echo ../.. > store/worktrees/x/commondir;"
        " mark >> store/config; echo 'gitdir: store/worktrees/x' > .git",
    ),
    Layout("linked-worktree", "git worktree add -q ../tree side; mark >> .git/config", folder="tree"),
    Layout(
        "linked-worktree-config",
        "git worktree add -q ../tree side; cfg extensions.worktreeConfig true; mark > .git/worktrees/tree/config.worktree",
        folder="tree",
    ),
    Layout("linked-worktree-hooks", "git worktree add -q ../tree side; hook .git/hooks post-index-change",
           "echo x > a.txt; git add a.txt", folder="tree"),
    Layout("below-the-top", "mkdir -p deep/er; echo d > deep/er/d.txt; mark >> .git/config", folder="repo/deep/er"),
    Layout("bare-in-place", "drive; cp -a .git/. .; rm -rf .git; cfg core.bare true;"
           " mkdir -p info; cp .gitattributes info/attributes; cfg diff.x.textconv $MARK", "git log -p"),
    Layout("objects-link", "mv .git/objects objects; ln -s ../objects .git/objects; mark >> .git/config"),
    # submodules
    Layout("submodule", "module sub; mark >> sub/.git/config"),
    Layout("submodule-gitfile", "module sub; git submodule --quiet absorbgitdirs sub 2>/dev/null;"
           " mkdir -p .git/modules; [ -d .git/modules/sub ] || { mv sub/.git .git/modules/sub;"
           " echo 'gitdir: ../.git/modules/sub' > sub/.git; }; mark >> .git/modules/sub/config"),
    Layout("submodule-elsewhere", "module sub; mv sub/.git store; mark >> store/config; echo 'gitdir: ../store' > sub/.git"),
    Layout("submodule-in-submodule", "module sub; cd sub; module sub2; mark >> sub2/.git/config; cd ..; git add sub;"
           " git commit -qm Two"),
    Layout("submodule-deep", "mkdir -p a/b/c/d/e/f/g; module a/b/c/d/e/f/g/sub; mark >> a/b/c/d/e/f/g/sub/.git/config"),
    Layout("submodule-summary", "module sub; mark >> sub/.git/config; cfg status.submoduleSummary true"),
    Layout("submodule-diff", "module sub; mark >> sub/.git/config; cfg diff.submodule diff", "git diff"),
    Layout("submodule-commondir", "module sub; cp -a sub/.git c; mark >> c/config; echo ../../c > sub/.git/commondir"),
    Layout("submodule-update",
           "module sub; printf '[submodule \"sub\"]\\npath=sub\\nurl=./sub\\n' > .gitmodules; git submodule -q init;"
           " cfg submodule.sub.update \"!$MARK\"; git -C sub commit -q --allow-empty -m X", "git submodule update"),
    # data that change all the time
    Layout("race-commondir", "cp -a .git common; mark >> common/config; echo ../common > c",
           race="cp c .git/commondir; rm .git/commondir"),
    Layout("race-config", "cp .git/config good; cp good bad; mark >> bad",
           race="cp bad t; mv t .git/config; cp good t; mv t .git/config"),
    Layout("race-git", "cp -a .git bad; mark >> bad/config",
           race="mv .git good; mv bad .git; mv .git bad; mv good .git"),
    Layout("race-gitfile", "cp -a .git bad; mark >> bad/config; echo 'gitdir: bad' > f",
           race="mv .git good; cp f .git; rm .git; mv good .git"),
    Layout("race-link", "cp -a .git bad; mark >> bad/config",
           race="mv .git good; ln bad .git; rm .git; mv good .git"),
    Layout("race-worktree-config", "cfg extensions.worktreeConfig true; mark > c",
           race="cp c .git/config.worktree; rm .git/config.worktree"),
    Layout("race-hooks", "cp evil h", "date +%N > a.txt; git add a.txt",
           race="cp h .git/hooks/post-index-change; rm .git/hooks/post-index-change"),
)  # fmt: skip


def make_base(folder: Path) -> Path:
    """Make the repository that all layouts begin with."""
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    lines = (
        "git init -q -b main; echo evil >> .git/info/exclude; git add .; git commit -qm One; git checkout -q -b side; echo s > a.txt; git commit -qam S;"
        " git checkout -q main; echo two > a.txt; git commit -qam Two; echo three > a.txt; echo new > new.txt"
    )
    run_shell(lines, folder, {})
    return folder


def build_layout(layout: Layout, base: Path, top: Path) -> Path:
    """Build a layout in a folder of its own; return the working folder of the agent in it."""
    work = top / "repo"
    shutil.copytree(base, work, symlinks=True)
    mark = work / "evil"
    (top / "tmp").mkdir()
    mark.write_text(f'#!/bin/sh\necho "$0" >> {top}/log 2>/dev/null\nexit 0\n')
    mark.chmod(0o755)
    run_shell(START + layout.build, work, {"MARK": str(mark), "W": str(work), "TOP": str(top)})
    (top / "log").write_text("")
    return top / layout.folder


def run_shell(lines: str, folder: Path, env: dict[str, str]) -> None:
    """Run lines of a shell in a folder, without configuration of this machine."""
    home = {"PATH": PATH, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **IDENTITY, **env}
    done = subprocess.run(
        ["/bin/sh", "-c", lines], cwd=folder, env=home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert "not found" not in done.stderr, done.stderr


def runs_with_plain_git(layout: Layout, top: Path) -> bool:
    """Return True if a plain git runs the program of a layout; in a sandbox, with a home of its own, and in a copy."""
    copy = top.parent / f"{top.name}.copy"
    shutil.copytree(top, copy, symlinks=True)
    words: list[str | Path] = [
        "timeout",
        "20",
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--bind",
        copy,
        top,
        "--unshare-all",
    ]
    words += ["--die-with-parent", "--new-session", "--chdir", top / layout.folder]
    env = {
        "PATH": PATH,
        "HOME": "/nonexistent",
        "MARK": f"{top}/repo/evil",
        "TERM": "dumb",
        "TMPDIR": f"{top}/tmp",
        **IDENTITY,
    }
    line = layout.trigger
    if layout.race:
        steps = layout.race.replace("ln ", "ln -s ")
        racing = f"(cd {top}/repo; while :; do {steps}; done) 2>/dev/null &"
        line = f"{racing} r=$!; for i in $(seq 400); do {line}; [ -s {top}/log ] && break; done; kill $r; wait"
    subprocess.run(
        [*words, "--", "/bin/sh", "-c", line], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    has_run = bool((copy / "log").read_text())
    shutil.rmtree(copy)
    return has_run


@contextlib.contextmanager
def changing(folder: str, race: str) -> Generator[None]:
    """Repeat the steps of a race in a folder all the time, on a thread."""
    has_ended = threading.Event()
    acts: dict[str, Callable[..., object]] = {
        "mv": os.rename,
        "cp": shutil.copy,
        "rm": os.unlink,
        "ln": os.symlink,
    }
    steps = [each.split() for each in race.split(";")]

    def change() -> None:
        while not has_ended.is_set():
            for name, *given in steps:
                with contextlib.suppress(OSError):
                    acts[name](
                        *[
                            each if name == "ln" and not place else f"{folder}/{each}"
                            for place, each in enumerate(given)
                        ]
                    )

    thread = threading.Thread(target=change, name="race")
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join(timeout=10)
