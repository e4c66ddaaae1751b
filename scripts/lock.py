"""Resolves the dependencies anew and writes constraints.txt: one exact version of each package, and nothing else.

    python -m scripts.lock

One file serves every supported Python: the oldest that is installed resolves first, and each newer one adds what it
needs beyond that. pip's report names the address of each file; only names and versions are taken from it.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.environment import CONSTRAINTS, ROOT, bare_requirements, requirements

HEADER = """\
# Every package of a development environment at one exact version. Written by `make lock`; not edited by hand.
# It is no list of dependencies (pyproject.toml is), so it may name a package that this Python or system does not need.
"""


def interpreters() -> list[tuple[str, str]]:
    """The installed Pythons as (version, path), oldest first."""
    found = subprocess.run([ROOT / "scripts" / "pythons"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(" ", 1) for line in found.splitlines()]
    return [(version, path) for version, path in reversed(lines)]


def resolve(python: str, wanted: list[str], pins: dict[str, str], *options: str) -> dict[str, str]:
    """What pip would install on this interpreter with these options, given what is pinned already."""
    with tempfile.TemporaryDirectory() as folder:
        report, constraints = Path(folder, "report.json"), Path(folder, "pins.txt")
        constraints.write_text(render(pins), encoding="utf-8")
        command = [python, "-m", "pip", "-qq", "install", "--dry-run", "--ignore-installed", "--only-binary=:all:"]
        subprocess.run([*command, *options, "--report", report, "--constraint", constraints, *wanted], check=True)
        installs = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {canonical(item["metadata"]["name"]): item["metadata"]["version"] for item in installs}


def canonical(name: str) -> str:
    """A package's name in the one spelling that all of them have."""
    return re.sub(r"[-_.]+", "-", name).lower()


def render(pins: dict[str, str]) -> str:
    """The pins as a constraints file."""
    return HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def main() -> int:
    """Resolve on each interpreter and write the file."""
    wanted, bare = requirements(["dev"]), bare_requirements(["dev"])
    pins: dict[str, str] = {}
    for version, python in interpreters():
        print(f"lock: resolving {len(wanted) + len(bare)} requirements on Python {version}", flush=True)
        try:
            pins = resolve(python, wanted, pins) | pins
            pins = resolve(python, bare, pins, "--no-deps") | pins
        except subprocess.CalledProcessError:
            print(
                f"lock: pip could not resolve them on Python {version}; constraints.txt is as it was", file=sys.stderr
            )
            return 1
    CONSTRAINTS.write_text(render(pins), encoding="utf-8")
    print(f"lock: {len(pins)} packages pinned; `make env` installs them")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
