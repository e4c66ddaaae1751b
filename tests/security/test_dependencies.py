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

ADVISORIES = {
    "aiohttp": {
        "3.12.13": "CVE-2025-53643",
        "3.13.2": "CVE-2025-69223 to 69230",
        "3.13.3": "CVE-2026-22815, 34513 to 34520, 34525",
        "3.13.5": "CVE-2026-34993, 47265",
        "3.14.0": "CVE-2026-54273 to 54280",
        "3.14.2": "CVE-2026-59881, 69243, 69244",
    },
    "apsw": {"3.50.1.0": "CVE-2025-6965 of SQLite", "3.50.2.0": "CVE-2025-7709 of SQLite"},
    "click": {"8.3.2": "CVE-2026-7246"},
    "mcp": {"1.9.3": "CVE-2025-53366", "1.22.0": "CVE-2025-66416", "1.28.0": "repaired in 1.28.1"},
    "playwright": {"1.55.0": "CVE-2025-59288"},
    "xllamacpp": {"2026.2.8145": "CVE-2026-27940, 33298 of llama.cpp, whose build is the last part of the version"},
    "pyyaml": {"5.3.1": "CVE-2020-14343"},
}
"""The last version that each advisory is about, of packages that a range names."""


@pytest.mark.parametrize("needed", NEEDED, ids=lambda needed: needed.name)
def test_no_version_with_a_known_advisory_lies_in_the_range(needed):
    for version, advisory in ADVISORIES.get(needed.name, {}).items():
        assert not needed.specifier.contains(version), advisory


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
