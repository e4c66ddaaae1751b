"""The ranges of the packages that Perdure needs at run time, and the versions that it is tested with."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDED = [
    Requirement(each)
    for each in (*PROJECT["dependencies"], *[each for name in EXTRAS for each in EXTRAS[name]])
    if not each.startswith("perdure[")
]
PINS = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
WITHOUT_MAJOR = {"xllamacpp"}
"""Packages that count by the calendar."""
UNTESTED = {"keyring"}
"""Packages that need a desktop: the tests have a stand-in."""


@pytest.mark.parametrize("needed", NEEDED, ids=lambda needed: needed.name)
def test_the_version_that_is_tested_lies_in_the_range(needed):
    pin = PINS.get(needed.name.lower().replace("_", "-"))
    if pin is None:
        assert needed.name in UNTESTED
    else:
        assert needed.specifier.contains(pin)


@pytest.mark.parametrize("needed", NEEDED, ids=lambda needed: needed.name)
def test_the_next_major_version_is_not_taken_unseen(needed):
    bounds = [each.version for each in needed.specifier if each.operator == "<"]
    floors = [each.version for each in needed.specifier if each.operator == ">="]
    assert len(floors) == 1
    expected = [] if needed.name in WITHOUT_MAJOR else [str(int(floors[0].split(".")[0]) + 1)]
    assert bounds == expected


def test_every_range_is_tested_by_a_version_that_is_pinned_exactly():
    assert len(NEEDED) >= 11
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in PINS.values())
