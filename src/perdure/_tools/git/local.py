"""`LocalGit`: run git in a folder of this machine, so that no program that the repository names runs.

Git gets a private copy of the repository's data: HEAD, index, branches and logs, with a configuration of our own, and
without hooks. So there is nothing in it that could name a program, and nothing that somebody could change between a
look and its use. It runs in a sandbox that has the work tree, read-only, and nothing else; what a commit has changed in
the copy is taken over afterwards, by names and values that are checked. The repository is that of the working folder,
or of one above it; a `.git` that leads elsewhere is refused.
"""

# ruff: noqa: PTH102, PTH103, PTH118, PTH119, PTH123, PTH208 - a Path would cost every start milliseconds
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from perdure._core.values.error import ConfigError, ToolError
from perdure._io.files.folder_handle import FolderHandle
from perdure._io.files.sensitive import SENSITIVE_NAMES
from perdure._io.home.runtime_files import RuntimeFilesBelow
from perdure._io.processes.program import ProgramOutput, run_program
from perdure._tools.files.local import LocalFiles
from perdure._tools.sandbox.bubblewrap import SYSTEM_PATH, filter_system_calls

from .private_copy import PrivateGitCopy
from .repository import GitRepository, find_repository, open_folders, open_repository, read_file, read_state
from .sandbox import build_git_sandbox, explain_missing_sandbox, find_git
from .takeover import create_branch, find_commit, take_over
from .tools import EXCLUDED, MOST_BYTES, GitOutput

MOST_SECONDS: Final = 20.0
"""The longest time that a command may take."""
_MOST_LISTED_BYTES: Final = 256 * 1024
_COMMANDS: Final = {
    "status": ("--ignore-submodules=all", "--no-renames", "--no-ahead-behind"),
    "diff": ("--no-color", "--ignore-submodules=all", "--relative"),
    "log": ("--no-color", "--no-decorate", "--no-mailmap"),
    "show": ("--no-color", "--ignore-submodules=all", "--relative"),
    "add": (),
    "commit": ("--no-edit", "--cleanup=whitespace"),
}
"""The commands that are run, and options that are added to each."""
_FILTERING: Final = frozenset({"--diff-filter"})
"""Options that choose by whether a file was renamed: names are told without renames, of which these choose others."""
_CHOOSING: Final = {"diff": _FILTERING | {"--all", "--branches", "--remotes", "--tags"}}
"""Those of a command, with the ones that name revisions whose order matters."""
_CHANGING: Final = frozenset({"add", "commit"})
_BRANCHES: Final = "refs/heads/"
_HIDDEN_PATHS: Final = tuple(
    f":(exclude,icase,glob)**/{each.rstrip('/')}{'/**' if each.endswith('/') else ''}"
    for each in SENSITIVE_NAMES
    if each != ".git/"
)


class LocalGit:
    """Runs git in the repository of a folder of this machine, given as `LocalFiles`; a `GitBackend` for git tools."""

    def __init__(self, files: LocalFiles, *, max_seconds: float = MOST_SECONDS) -> None:
        """Use the repository of the folder of `files`; it need not exist yet.

        Raises `ConfigError` if there is no git on PATH outside the folder.
        """
        if not isinstance(files, LocalFiles):
            raise ConfigError(f"LocalGit({files!r}): give LocalFiles('.')")
        self._program = find_git(files.root)
        self._root = files.root
        self._runtime_files = RuntimeFilesBelow(files.root)
        self._seconds = max_seconds
        self._problem = explain_missing_sandbox()

    @property
    def risk(self) -> str:
        """The risk that a person is shown who is asked about a call; empty if git runs in a sandbox."""
        if not self._problem:
            return ""
        return (
            f"There is no sandbox: {self._problem}. Git runs without one, with a private copy of the repository's "
            "data, a configuration of our own, and no hooks"
        )

    def run_git(self, arguments: Sequence[str], *, given: str = "", max_bytes: int = MOST_BYTES) -> GitOutput:
        """Run a git command of the git tools. Raises `ToolError` if it is none, or cannot be run."""
        if not arguments or arguments[0] not in _COMMANDS or "--" not in arguments:
            raise ToolError(f"git {' '.join(arguments[:1])!r} is not one of the commands of the tools")
        command, split = arguments[0], list(arguments).index("--")
        paths = [_to_pathspec(each) for each in arguments[split + 1 :]]
        hidden = () if command in _CHANGING else _HIDDEN_PATHS
        hidden = (*hidden, *[f":(exclude,literal){each}" for each in self._runtime_files.list_existing()])
        words = [command, *_COMMANDS[command], *arguments[1:split], "--", *paths, *hidden]
        repository = find_repository(self._root)
        with PrivateGitCopy.of(repository) as copy:
            done = self._run(repository, copy, words, given=given.encode("utf-8", "replace"), max_bytes=max_bytes)
            if command in _CHANGING and not done.exit_code:
                take_over(repository, copy)
        text = done.stdout.decode("utf-8", "replace")
        return GitOutput(text, done.exit_code, done.stderr.decode("utf-8", "replace"), done.is_truncated)

    def list_shown_paths(
        self, command: str, options: Sequence[str], revisions: Sequence[str], paths: Sequence[str]
    ) -> list[str] | None:
        """Return the paths, relative to the folder, of all files that `git diff`, `show` or `log -p` would show.

        Runs the command with the same options, but for names. `None` if a revision is no commit, an option would show
        others, a file is not below the folder, or there are too many. Raises `ToolError` if git cannot be run.
        """
        if any(each.partition("=")[0] in _CHOOSING.get(command, _FILTERING) for each in options):
            return None
        repository = find_repository(self._root)
        with PrivateGitCopy.of(repository) as copy:
            named = [each for each in revisions if not os.path.lexists(os.path.join(self._root, each))]
            commits = [part for each in named for part in re.split(r"\.{2,3}", each.removeprefix("^")) if part]
            peeled = [f"{each}^{{commit}}" for each in commits]
            checking = ["rev-parse", "--quiet", "--end-of-options", *peeled]
            if peeled and self._run(repository, copy, checking).exit_code:
                return None
            safe = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--name-only", "-z")
            form = () if command == "diff" else ("--format=",)
            words = [command, *options, *safe, "--ignore-submodules=all", *form, *revisions]
            words += ["--", *paths] if paths else []
            done = self._run(repository, copy, words, max_bytes=_MOST_LISTED_BYTES)
        if done.exit_code or done.is_truncated:
            return None
        inside = os.path.relpath(self._root, repository.work_tree)
        prefix = "" if inside == "." else f"{inside}/"
        found = {each.strip("\n") for each in done.stdout.decode("utf-8", "surrogateescape").split("\0")} - {""}
        return [each.removeprefix(prefix) for each in sorted(found)] if _all_begin(found, prefix) else None

    def find_work_tree(self) -> str:
        """Return the root of the work tree that the folder is in. Raises `ToolError` if it is in no repository."""
        return find_repository(self._root).work_tree

    def read_branch(self) -> str:
        """Return the name of the branch that is checked out; empty if none is."""
        with open_folders(find_repository(self._root)) as (own, _):
            return _parse_branch(read_file(own, "HEAD"))

    def add_worktree(self, path: str, branch: str) -> None:
        """Check out a branch in a work tree of its own at `path`; a new branch begins at the present commit.

        Raises `ToolError` if that is not possible, for example because the branch is checked out elsewhere.
        """
        repository = find_repository(self._root)
        try:
            _register_worktree(repository, path, branch)
            try:
                self._check_out(open_repository(path))
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                shutil.rmtree(_find_entry(repository, path), ignore_errors=True)
                raise
        except (ToolError, OSError) as error:
            raise ToolError(f"the work tree for {branch!r} cannot be made: {error}") from error

    def _check_out(self, made: GitRepository) -> None:
        """Write the files of a new work tree."""
        with PrivateGitCopy.of(made) as copy:
            done = self._run(made, copy, ["reset", "--quiet", "--hard", "HEAD"], cwd=made.work_tree, checks_out=True)
            if done.exit_code:
                raise ToolError(done.stderr.decode("utf-8", "replace").strip()[-500:] or f"exit code {done.exit_code}")
            take_over(made, copy)

    def _run(
        self, repository: GitRepository, copy: PrivateGitCopy, words: Sequence[str], *, given: bytes = b"",
        max_bytes: int = MOST_BYTES, cwd: str = "", checks_out: bool = False,
    ) -> ProgramOutput:  # fmt: skip
        cwd = cwd or self._root
        writable = (repository.work_tree, copy.path) if checks_out else (copy.path,)
        readable = (repository.work_tree, repository.objects)
        words = [
            self._program,
            "--no-pager",
            "--no-optional-locks",
            "--no-replace-objects",
            f"--git-dir={copy.path}",
            f"--work-tree={repository.work_tree}",
            "-c",
            "core.quotePath=false",
            *words,
        ]
        run = partial(run_program, cwd=cwd, env=_build_environment(), max_seconds=self._seconds, max_bytes=max_bytes)
        if self._problem:
            return run(words, given=given)
        sandbox = build_git_sandbox(self._program, cwd, readable=readable, writable=writable)
        with filter_system_calls([*sandbox, *words]) as (filtered, descriptors):
            return run(filtered, given=given, descriptors=descriptors)


def _register_worktree(repository: GitRepository, path: str, branch: str) -> None:
    """Enter a new work tree into the list of a repository, with its branch."""
    name = f"{_BRANCHES}{branch}"
    with open_folders(repository) as (own, common):
        state = read_state(own, common)
        heads = {each: read_file(common, f"worktrees/{each}/HEAD") for each in _list_worktrees(common)}
        main_head = read_file(common, "HEAD")
    entry = _find_entry(repository, path)
    others = [each for each, head in heads.items() if _parse_branch(head) == branch and each != os.path.basename(entry)]
    if _parse_branch(main_head) == branch or any(_is_present(repository, each) for each in others):
        raise ToolError(f"{branch!r} is checked out already")
    if os.path.lexists(path):
        raise ToolError(f"{path!r} exists already")
    if find_commit(state, name) is None:
        commit = find_commit(state, "HEAD")
        if commit is None:
            raise ToolError("there is no commit to begin at")
        create_branch(repository, name, commit)
    shutil.rmtree(entry, ignore_errors=True)  # of a work tree that is gone
    os.makedirs(entry)
    os.mkdir(path)
    _write(os.path.join(entry, "gitdir"), f"{os.path.join(path, '.git')}\n")
    _write(os.path.join(entry, "commondir"), "../..\n")
    _write(os.path.join(entry, "HEAD"), f"ref: {name}\n")
    _write(os.path.join(path, ".git"), f"gitdir: {entry}\n")


def _find_entry(repository: GitRepository, path: str) -> str:
    return os.path.join(repository.common_folder, "worktrees", os.path.basename(path))


def _list_worktrees(common: FolderHandle) -> list[str]:
    try:
        with common.open_folder(["worktrees"]) as folder:
            return os.listdir(folder)
    except OSError:
        return []


def _is_present(repository: GitRepository, entry: str) -> bool:
    """Return True unless the work tree of an entry is gone."""
    with open_folders(repository) as (_, common):
        place = (read_file(common, f"worktrees/{entry}/gitdir") or b"").strip()
    return os.path.lexists(place)


def _parse_branch(head: bytes | None) -> str:
    """Return the name of the branch that a HEAD names; empty if it names a commit."""
    text = (head or b"").decode("utf-8", "surrogateescape").strip()
    start = f"ref: {_BRANCHES}"
    return text.removeprefix(start) if text.startswith(start) else ""


def _write(path: str, text: str) -> None:
    with open(path, "x", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def _to_pathspec(path: str) -> str:
    if path.startswith(EXCLUDED):
        return f":(exclude,literal){path.removeprefix(EXCLUDED)}"
    return f":(literal){path}" if path != "." else "."


def _all_begin(names: Iterable[str], prefix: str) -> bool:
    return all(each.startswith(prefix) for each in names)


def _build_environment() -> dict[str, str]:
    """Return the environment of git: it has the configuration of the copy alone, and nothing is asked."""
    return {
        **({"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}),
        "PATH": SYSTEM_PATH,
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_EDITOR": "false",
        "GIT_PAGER": "cat",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }
