"""Makes one virtual environment: the pinned packages of some dependency groups, and this project, editable.

    python scripts/environment.py .venv dev

Run by the interpreter that the environment is for; standard library only. `make env` and `scripts/test-on-others` call
it. uv does the work when it is on PATH, pip otherwise. Versions come from constraints.txt, the index from whatever the
machine's own configuration says. When nothing changed since last time it does nothing, quickly.
"""

import compileall
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
DOT_SECONDS = 1.0
"""How often a command that is still running prints a dot."""
INDEX_ADVICE = (
    "  Is the package index reachable? pip and uv read a mirror or a proxy from their own settings\n"
    "  (PIP_INDEX_URL, UV_DEFAULT_INDEX, HTTPS_PROXY). Then run the same command again."
)


class SetupError(Exception):
    """The environment could not be made; the message says why and what to do."""


def group_requirements(project: dict[str, Any], group: str) -> list[str]:
    """The requirements of one dependency group of pyproject.toml, with the groups it includes."""
    groups = project["dependency-groups"]
    if group not in groups:
        raise SetupError(f"pyproject.toml has no dependency group {group!r}; it has {', '.join(sorted(groups))}")
    found: list[str] = []
    for member in groups[group]:
        found += [member] if isinstance(member, str) else group_requirements(project, member["include-group"])
    return found


def requirements(groups: list[str]) -> list[str]:
    """Everything that an environment with these groups asks for by name: what we import, and what builds us."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {*project["project"]["dependencies"], *project["build-system"]["requires"]}
    for group in ["build", *groups]:
        wanted.update(group_requirements(project, group))
    return sorted(wanted)


def bare_requirements(groups: list[str]) -> list[str]:
    """What an environment with these groups holds without what that depends on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    table = project["tool"]["perdure"]["without-dependencies"]
    return sorted({each for group in groups for each in table.get(group, [])})


def fingerprint(groups: list[str]) -> str:
    """Changes when the environment has to be made again, and only then."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [requirements(groups), bare_requirements(groups)]
    facts = [wanted, CONSTRAINTS.read_text(encoding="utf-8"), project, str(ROOT), sys.version]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def run(*command: str, step: str = "") -> None:
    """Run a command with its output hidden; when it fails, show the end of that output.

    With a step, its name is printed at once, a dot for each second while the command runs, and how long it took.
    """
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            exit_code = wait_with_dots(process, step) if step else process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        output.seek(0)
        lines = output.read().strip().splitlines() if exit_code else []
    if exit_code != 0:
        end = "\n".join(lines[-15:])
        advice = f"\n{INDEX_ADVICE}" if "install" in command else ""
        raise SetupError(f"this command failed with exit code {exit_code}:\n  {' '.join(command)}\n{end}{advice}")


def wait_with_dots(process: subprocess.Popen[bytes], step: str) -> int:
    """Return the exit code; until then print the step, and a dot for each second."""
    started = time.monotonic()
    print(f"env:   {step} ", end="", flush=True)
    try:
        while True:
            try:
                return process.wait(DOT_SECONDS)
            except subprocess.TimeoutExpired:
                print(".", end="", flush=True)
    finally:
        print(f" {time.monotonic() - started:.0f} s", flush=True)


def install_with_uv(folder: Path, wanted: list[str], bare: list[str]) -> None:
    """Make the folder and fill it, with uv."""
    python = str(folder / "bin" / "python")
    if not (folder / "pyvenv.cfg").exists():
        run("uv", "venv", "--quiet", "--python", sys.executable, str(folder), step=f"an empty {folder.name}")
    fill(["uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", python], wanted, bare)


def install_with_pip(folder: Path, wanted: list[str], bare: list[str]) -> None:
    """Make the folder and fill it, with the pip that Python brings, or else with the one beside it."""
    python = str(folder / "bin" / "python")
    if importlib.util.find_spec("ensurepip") or provide_ensurepip():
        pip = [python, "-m", "pip"]
        if not (folder / "bin" / "pip").exists():
            run(sys.executable, "-m", "venv", "--clear", str(folder), step=f"an empty {folder.name}")
    elif importlib.util.find_spec("pip"):
        pip = [sys.executable, "-m", "pip", "--python", python]
        if not (folder / "pyvenv.cfg").exists():
            run(sys.executable, "-m", "venv", "--without-pip", str(folder), step=f"an empty {folder.name}")
    else:
        raise SetupError(
            f"{sys.executable!r} has neither ensurepip nor pip, so it cannot make an environment.\n"
            "  Debian and Ubuntu: apt-get install python3-venv. Elsewhere: install uv, or another Python 3.11+."
        )
    fill([*pip, "install", "--quiet"], wanted, bare)


def fill(install: Sequence[str], wanted: list[str], bare: list[str]) -> None:
    """Run an installer for the packages, for those that come without what they depend on, and for this project."""
    pinned = ("--constraint", str(CONSTRAINTS))
    run(*install, *pinned, *wanted, step=f"{name_packages(wanted)}, and what they need")
    if bare:
        run(*install, *pinned, "--no-deps", *bare, step=name_packages(bare))
    run(*install, "--no-deps", "--no-build-isolation", "--editable", str(ROOT), step="this project, editable")


def name_packages(wanted: list[str]) -> str:
    """Return the names of requirements such as `psycopg[binary]>=3.2`, without versions and extras."""
    return ", ".join(re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in wanted)


def provide_ensurepip() -> bool:
    """Debian keeps ensurepip in a package of its own: install it where we may and pip is not there either."""
    if importlib.util.find_spec("pip") or os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    package = f"python3.{sys.version_info.minor}-venv"
    say(f"installing Debian's {package}, which this Python lacks")
    run("apt-get", "update", "-qq", step="Debian's list of packages")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", package, step=package)
    importlib.invalidate_caches()
    return importlib.util.find_spec("ensurepip") is not None


def discard_another_pythons(folder: Path) -> None:
    """Remove an environment that belongs to another interpreter, or whose interpreter is gone."""
    try:
        answer = subprocess.run(
            [folder / "bin" / "python", "-c", "import sys; print(sys.version)"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        if answer.stdout.strip() != sys.version.strip():
            shutil.rmtree(folder)


def install(folder: Path, groups: list[str]) -> None:
    """Fill the folder, by uv if it is there and succeeds, else by pip."""
    wanted, bare = requirements(groups), bare_requirements(groups)
    contents = f"Python {sys.version.split()[0]}, {len(wanted) + len(bare)} packages and what they need"
    say(f"making {folder.name} ({contents})")
    discard_another_pythons(folder)
    if shutil.which("uv"):
        try:
            return install_with_uv(folder, wanted, bare)
        except SetupError as error:
            say(f"uv did not manage, so pip is tried; {error}")
            shutil.rmtree(folder, ignore_errors=True)
    return install_with_pip(folder, wanted, bare)


def say(text: str) -> None:
    """Print one line for a phase."""
    print(f"env: {text}", flush=True)


def main(folder_name: str, *groups: str) -> int:
    """Make the environment if it is not there as it should be, and see that all of it is compiled."""
    folder = ROOT / folder_name
    stamp = folder / ".perdure-stamp"
    wanted = fingerprint(list(groups))
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
        try:
            install(folder, list(groups))
        except SetupError as error:
            print(f"env: {error}", file=sys.stderr)
            return 1
        stamp.write_text(wanted, encoding="utf-8")
        say(f"{folder.name} is ready")
    # Where Python is told not to write bytecode, each import of our own sources would compile them again.
    compileall.compile_dir(ROOT / "src", quiet=2)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
