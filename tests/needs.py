"""The marks `needs`, `packages` and `wire`: tests that use more than others, and what becomes of them without it.

A pytest plugin, loaded by conftest.py. The table of parts is in scripts/system_parts.py.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts.system_parts import PARTS, advice

ROOT = Path(__file__).resolve().parent.parent


def under_ci() -> bool:
    """Whether this run decides if a change is taken."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def wire_folder() -> Path:
    """Where recordings of real traffic lie: PERDURE_WIRE, or a folder beside the checkout."""
    return Path(os.environ.get("PERDURE_WIRE") or ROOT.parent / "shared" / "wire")


@pytest.fixture
def wire() -> Path:
    """The folder of recordings, for tests marked `wire`."""
    return wire_folder()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out, visibly, what cannot run here; under CI nothing that could be installed may be left out."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            require_part(name)
    for mark in item.iter_markers("packages"):
        for name in mark.args:
            require_package(name)
    if item.get_closest_marker("wire") and not wire_folder().is_dir():
        pytest.skip(f"no recordings at {str(wire_folder())!r}: set PERDURE_WIRE to their folder")


def require_part(name: str) -> None:
    """Skip the test, or fail it under CI, when the part is not there."""
    if name not in PARTS:
        known = ", ".join(sorted(PARTS)) or "none"
        pytest.fail(f"needs({name!r}): no such part in scripts/system_parts.py; known: {known}", pytrace=False)
    if PARTS[name].present():
        return
    reason = f"{name} is not installed. {advice(PARTS[name])}"
    if under_ci():
        pytest.fail(f"{reason}. Under CI nothing is left out", pytrace=False)
    pytest.skip(reason)


def require_package(name: str) -> None:
    """Skip the test where a package is not installed. The environment of `make env` has them all, so there CI fails."""
    parent = name.rpartition(".")[0]
    if (not parent or find_spec(parent) is not None) and find_spec(name) is not None:
        return
    reason = f"the package {name} is not installed here; `make env` installs it into .venv alone"
    if under_ci() and in_main_environment():
        pytest.fail(f"{reason}, and this is .venv. Under CI nothing is left out", pytrace=False)
    pytest.skip(reason)


def in_main_environment() -> bool:
    """Whether this is the environment to work in, and not that of one more interpreter."""
    main = ROOT / ".venv"
    return main.exists() and main.samefile(sys.prefix)
