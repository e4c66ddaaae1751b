"""`LocalGit`: run git in a folder of this machine, hardened so that no hook or program of the repository runs.

A repository can bring programs: hooks, filters and diff drivers in its configuration, a monitor of files, a pager, an
editor. All are switched off for every command: the known ones by name, and those that only the configuration names
after it was read (reading it runs nothing). The repository is that of the working folder, or of one above it; a `.git`
that leads elsewhere is refused.
"""

# ruff: noqa: PTH112, PTH114, PTH118, PTH120 - a Path would cost every start milliseconds
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from typing import Final

from perdure.core.error import ConfigError, ToolError
from perdure.files.file_head import UnreadableFile, read_file_head
from perdure.files.sensitive_names import SENSITIVE_NAMES
from perdure.toolkits.git_tools import EXCLUDED, MOST_BYTES, GitOutput

from .bounded_program import ProgramOutput, run_program
from .local_files import LocalFiles

MOST_SECONDS: Final = 20.0
"""The longest time that a command may take."""
_MOST_LISTED_BYTES: Final = 256 * 1024
_FULL_LISTING: Final = ("diff.relative=false", "log.showRoot=true")
"""Settings with which no configuration, also not the user's own, leaves files out of a listing."""
_COMMANDS: Final = {
    "status": ("--ignore-submodules=all", "--no-renames", "--no-ahead-behind"),
    "diff": ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "--relative"),
    "log": ("--no-ext-diff", "--no-textconv", "--no-color", "--no-show-signature", "--no-decorate", "--no-mailmap"),
    "show": (
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--no-show-signature",
        "--ignore-submodules=all",
        "--relative",
    ),
    "add": (),
    "commit": ("--no-verify", "--no-gpg-sign", "--no-edit", "--cleanup=whitespace"),
}
"""The commands that are run, and options that are added to each."""
_SETTINGS: Final = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "core.editor=false", "core.askPass=false",
    "core.sshCommand=false", "core.gitProxy=", "core.alternateRefsCommand=false", "core.untrackedCache=false",
    "core.attributesFile=/dev/null", "sequence.editor=false", "diff.external=", "diff.submodule=short",
    "interactive.diffFilter=", "gpg.program=false", "gpg.ssh.program=false", "gpg.x509.program=false",
    "commit.gpgSign=false", "commit.template=", "log.showSignature=false", "credential.helper=", "protocol.allow=never",
    "gc.auto=0", "maintenance.auto=false", "submodule.recurse=false", "status.submoduleSummary=false",
    "core.quotePath=false", "advice.detachedHead=false", "trailer.separators=:",
)  # fmt: skip
"""Settings that no configuration of the repository can override."""
_DRIVER: Final = re.compile(
    r"(?P<driver>(?:filter|diff|merge|trailer|mergetool|difftool|gpg|alias|pager|browser|credential)\..+)\."
    r"(?:clean|smudge|process|command|textconv|driver|cmd|program|helper|path)",
    re.DOTALL,
)
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
        found = shutil.which("git")
        self._program = os.path.realpath(found) if found else ""
        if not self._program or self._program.startswith(files.root.rstrip(os.sep) + os.sep):
            raise ConfigError("LocalGit: there is no program git on PATH (outside the folder): install git")
        self._root = files.root
        self._seconds = max_seconds

    def run_git(self, arguments: Sequence[str], *, given: str = "", max_bytes: int = MOST_BYTES) -> GitOutput:
        """Run a git command of the git tools, hardened. Raises `ToolError` if it is none, or cannot be run."""
        if not arguments or arguments[0] not in _COMMANDS or "--" not in arguments:
            raise ToolError(f"git {' '.join(arguments[:1])!r} is not one of the commands of the tools")
        command, split = arguments[0], list(arguments).index("--")
        paths = [_to_pathspec(each) for each in arguments[split + 1 :]]
        hidden = _HIDDEN_PATHS if command in {"status", "diff", "log", "show"} else ()
        words = [command, *_COMMANDS[command], *arguments[1:split], "--", *paths, *hidden]
        repository = self._find_repository()
        settings = [*_SETTINGS, *self._find_drivers(repository)]
        done = self._run(repository, settings, words, given=given.encode("utf-8", "replace"), max_bytes=max_bytes)
        text = done.stdout.decode("utf-8", "replace")
        return GitOutput(text, done.exit_code, done.stderr.decode("utf-8", "replace"), done.is_truncated)

    def list_shown_paths(
        self, command: str, options: Sequence[str], revisions: Sequence[str], paths: Sequence[str]
    ) -> list[str] | None:
        """Return the paths, relative to the folder, of all files that `git diff`, `show` or `log -p` would show.

        Runs the command with the same options, but for names. `None` if a revision is no commit, a file is not below
        the folder, or there are too many. Raises `ToolError` if git cannot be run.
        """
        repository = self._find_repository()
        settings = [*_SETTINGS, *_FULL_LISTING, *self._find_drivers(repository)]
        named = [each for each in revisions if not os.path.lexists(os.path.join(self._root, each))]
        commits = [part for each in named for part in re.split(r"\.{2,3}", each.removeprefix("^")) if part]
        peeled = [f"{each}^{{commit}}" for each in commits]
        if peeled and self._run(repository, settings, ["rev-parse", "--quiet", "--end-of-options", *peeled]).exit_code:
            return None
        safe = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--name-only", "-z")
        form = () if command == "diff" else ("--format=",)
        words = [command, *options, *safe, *form, *revisions, *(("--", *paths) if paths else ())]
        done = self._run(repository, settings, words, max_bytes=_MOST_LISTED_BYTES)
        if done.exit_code or done.is_truncated:
            return None
        inside = os.path.relpath(self._root, repository[1])
        prefix = "" if inside == "." else f"{inside}/"
        found = {each.strip("\n") for each in done.stdout.decode("utf-8", "surrogateescape").split("\0")} - {""}
        return [each.removeprefix(prefix) for each in sorted(found)] if _all_begin(found, prefix) else None

    def find_work_tree(self) -> str:
        """Return the root of the work tree that the folder is in. Raises `ToolError` if it is in no repository."""
        return self._find_repository()[1]

    def read_branch(self) -> str:
        """Return the name of the branch that is checked out; empty if none is."""
        done = self._run(self._find_repository(), _SETTINGS, ["symbolic-ref", "--quiet", "--short", "HEAD"])
        return done.stdout.decode("utf-8", "replace").strip()

    def add_worktree(self, path: str, branch: str) -> None:
        """Check out a branch in a work tree of its own at `path`; a new branch begins at the present commit.

        Raises `ToolError` if git refuses, for example because the branch is checked out elsewhere.
        """
        repository = self._find_repository()
        settings = [*_SETTINGS, *self._find_drivers(repository)]
        self._run(repository, settings, ["worktree", "prune"])
        name = f"refs/heads/{branch}"
        is_known = not self._run(repository, settings, ["rev-parse", "--quiet", "--verify", name]).exit_code
        words = ["--", path, branch] if is_known else ["-b", branch, "--", path, "HEAD"]
        done = self._run(repository, settings, ["worktree", "add", "--quiet", *words])
        if done.exit_code:
            problem = done.stderr.decode("utf-8", "replace").strip()[-500:]
            raise ToolError(f"the work tree for {branch!r} cannot be made: {problem or f'exit code {done.exit_code}'}")

    def _run(
        self, repository: tuple[str, str], settings: Sequence[str], words: Sequence[str], *, given: bytes = b"",
        max_bytes: int = MOST_BYTES,
    ) -> ProgramOutput:  # fmt: skip
        git_folder, work_tree = repository
        options = [part for each in settings for part in ("-c", each)]
        return run_program(
            [
                self._program,
                "--no-pager",
                "--no-optional-locks",
                "--no-replace-objects",
                f"--git-dir={git_folder}",
                f"--work-tree={work_tree}",
                *options,
                *words,
            ],
            cwd=self._root,
            env=_build_environment(),
            max_seconds=self._seconds,
            max_bytes=max_bytes,
            given=given,
        )

    def _find_repository(self) -> tuple[str, str]:
        """Return the folder with the data of the repository, and its work tree. Raises `ToolError` if there is none."""
        here = self._root
        while True:
            place = os.path.join(here, ".git")
            if os.path.lexists(place):
                return _check_repository(place), here
            above = os.path.dirname(here)
            if above == here:
                raise ToolError("the working folder is in no git repository")
            here = above

    def _find_drivers(self, repository: tuple[str, str]) -> list[str]:
        """Return settings that switch off what only the repository's own configuration names."""
        listed = self._run(
            repository, (), ["config", "--local", "--includes", "--null", "--name-only", "--list"], max_bytes=1 << 20
        )
        if listed.is_truncated:
            raise ToolError("the configuration of the repository is too large")
        found: dict[str, None] = {}
        for name in listed.stdout.decode("utf-8", "surrogateescape").split("\0"):
            if _DRIVER.fullmatch(name) and "=" not in name:
                found[f"{name}="] = None
            elif _DRIVER.fullmatch(name):
                raise ToolError("the configuration of the repository names a driver with '=': it is not used")
            if name.startswith("filter.") and "=" not in name:
                found[f"{name.rpartition('.')[0]}.required=false"] = None
        return [*found]


def _to_pathspec(path: str) -> str:
    if path.startswith(EXCLUDED):
        return f":(exclude,literal){path.removeprefix(EXCLUDED)}"
    return f":(literal){path}" if path != "." else "."


def _all_begin(names: Iterable[str], prefix: str) -> bool:
    return all(each.startswith(prefix) for each in names)


def _check_repository(place: str) -> str:
    """Return the folder with the data of a repository. Raises `ToolError` if `.git` leads elsewhere."""
    if os.path.islink(place):
        raise ToolError("the folder .git is a link, and is not used")
    if os.path.isdir(place):
        if os.path.lexists(os.path.join(place, "commondir")):
            raise ToolError("the folder .git shares the data of another repository, and is not used")
        return place
    try:
        line = read_file_head(place, 4096).data.decode().strip()
        folder = os.path.join(os.path.dirname(place), line.removeprefix("gitdir:").strip())
        back = read_file_head(os.path.join(folder, "gitdir"), 4096).data.decode().strip()
    except (UnreadableFile, UnicodeDecodeError) as error:
        raise ToolError("the file .git leads to another repository, and is not used") from error
    if os.path.realpath(back) != os.path.realpath(place):  # a work tree is known to the repository that it belongs to
        raise ToolError("the file .git leads to another repository, and is not used")
    return folder


def _build_environment() -> dict[str, str]:
    """Return the environment of git: the user's own settings are found by HOME, and nothing is asked."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "XDG_CONFIG_HOME") if name in os.environ}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_EDITOR": "false",
        "GIT_PAGER": "cat",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ATTR_NOSYSTEM": "1",
    }
