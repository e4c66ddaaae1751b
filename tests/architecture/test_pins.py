"""constraints.txt pins every package that an environment holds, and nothing but names and versions."""

import importlib.metadata
import re

from scripts.environment import CONSTRAINTS, requirements
from scripts.lock import canonical


def pin_lines() -> list[str]:
    return [line for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def name_of(requirement: str) -> str:
    """The package that a requirement asks for: `click>=8.1; python_version > "3"` asks for click."""
    return canonical(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])


def version_here(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def closure(name: str, seen: set[str]) -> set[str]:
    """A package that is installed here and all that it brings along, extras aside."""
    if name not in seen and version_here(name):
        seen.add(name)
        for requirement in importlib.metadata.requires(name) or []:
            if "extra ==" not in requirement:
                closure(name_of(requirement), seen)
    return seen


def test_every_line_is_a_name_and_an_exact_version():
    assert [line for line in pin_lines() if not re.fullmatch(r"[a-z0-9-]+==[\w.!+-]+", line)] == []


def test_everything_that_an_environment_holds_is_there_at_its_pinned_version():
    pins = dict(line.split("==") for line in pin_lines())
    needed: set[str] = set()
    for requirement in requirements(["dev"]):
        assert name_of(requirement) in pins, f"{requirement!r} is not pinned: make lock"
        closure(name_of(requirement), needed)
    assert {name: (version_here(name), pins.get(name)) for name in needed if version_here(name) != pins.get(name)} == {}


def test_an_installation_stays_small():
    """`pip install perdure` brings at most twenty distributions."""
    assert len(closure("perdure", set())) <= 20
