"""The parts of the system that tests need beyond Python packages: which they are, and how they are had.

    python -m scripts.system_parts

installs the missing ones where it may (Debian, root), and says elsewhere which tests are left out and how to get them.
A test names what it needs, `@pytest.mark.needs("ripgrep")`, and tests/conftest.py skips it, or fails it under CI, when
the part is missing. The table holds what today's tests need and nothing else.
"""

import os
import shutil
import subprocess
import zoneinfo
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from scripts import mcp_servers


class Part(NamedTuple):
    """A program or a server that some tests use."""

    package: str
    """The Debian package that brings it."""

    present: Callable[[], bool]
    """Whether it is there."""

    fetch: Callable[[], None] | None = None
    """Installs it into this checkout, once the Debian package is there; anybody may."""


DEBIAN_POSTGRES = Path("/usr/lib/postgresql")


def on_path(command: str) -> Callable[[], bool]:
    """A check that a command can be found, as in `Part(package="ripgrep", present=on_path("rg"))`."""
    return lambda: shutil.which(command) is not None


def postgres_folder() -> Path | None:
    """Where the programs of a PostgreSQL server lie. Debian keeps them off PATH, one folder for each version."""
    folders = [path.parent for path in DEBIAN_POSTGRES.glob("*/bin/initdb")]
    if folders:
        return max(folders, key=lambda folder: float(folder.parent.name))
    elsewhere = shutil.which("initdb")
    return Path(elsewhere).resolve().parent if elsewhere else None


def pgbouncer_program() -> str | None:
    """PostgreSQL's usual pooler, which Debian keeps where not everybody's PATH leads."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def has_timezones() -> bool:
    """Whether the system has time zones by name."""
    try:
        return bool(zoneinfo.ZoneInfo("Europe/Berlin"))
    except zoneinfo.ZoneInfoNotFoundError:
        return False


PARTS: dict[str, Part] = {
    "bubblewrap": Part(package="bubblewrap", present=on_path("bwrap")),
    "chromium": Part(package="chromium", present=on_path("chromium")),
    "mcp_servers_of_npm": Part(
        package="npm", present=mcp_servers.has_node_servers, fetch=mcp_servers.install_node_servers
    ),
    "mcp_servers_of_pypi": Part(
        package="", present=mcp_servers.has_python_servers, fetch=mcp_servers.install_python_servers
    ),
    "pgbouncer": Part(package="pgbouncer", present=lambda: pgbouncer_program() is not None),
    "postgres": Part(package="postgresql", present=lambda: postgres_folder() is not None),
    "ripgrep": Part(package="ripgrep", present=on_path("rg")),
    "strace": Part(package="strace", present=on_path("strace")),
    "tmux": Part(package="tmux", present=on_path("tmux")),
    "tzdata": Part(package="tzdata", present=has_timezones),
}
"""By the name that tests use."""


def missing(parts: Mapping[str, Part]) -> dict[str, Part]:
    """Those of the parts that are not there."""
    return {name: part for name, part in parts.items() if not part.present()}


def advice(part: Part) -> str:
    """How a person gets a part."""
    if part.fetch is not None:
        return "run: make parts"
    return f"Debian and Ubuntu: apt-get install {part.package}"


def may_install() -> bool:
    """Whether this is a Debian-like system and we are its root."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def needs_package(part: Part) -> bool:
    """Whether a Debian package is missing for a part."""
    return bool(part.package) and (part.fetch is None or shutil.which(part.package) is None)


def install(parts: Mapping[str, Part]) -> None:
    """Install the parts with Debian's packages; a failure is told and left to the tests to judge."""
    packages = sorted({part.package for part in parts.values() if needs_package(part)})
    if not packages:
        return
    print(f"parts: installing {' '.join(packages)}", flush=True)
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", *command],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            print(f"parts: apt-get {command[0]} failed: {done.stderr.strip()[-500:]}")


def main() -> None:
    """Install what is missing where we may, and say what is missing still."""
    absent = missing(PARTS)
    if absent and may_install():
        install(absent)
        absent = missing(PARTS)
    for part in absent.values():
        if part.fetch is not None:
            part.fetch()
    absent = missing(absent)
    for name, part in absent.items():
        print(f'parts: {name} is missing, so tests marked needs("{name}") are left out. {advice(part)}')


if __name__ == "__main__":
    main()
