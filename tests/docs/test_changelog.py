"""CHANGELOG.md and the version of the package agree."""

import re

from click.testing import CliRunner
from packaging.version import Version

from perdure import __version__
from perdure._cli.main import root_command
from tests.architecture.source import ROOT

HEADING = re.compile(r"^## \[([^]]+)\]", re.MULTILINE)


def versions() -> list[str]:
    """The sections of the changelog, the newest first."""
    return HEADING.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def test_the_newest_version_of_the_changelog_is_that_of_the_package():
    newest, *older = versions()
    assert __version__ == (older[0] if newest.lower() == "unreleased" else newest)


def test_the_versions_of_the_changelog_descend():
    numbers = [Version(each) for each in versions() if each.lower() != "unreleased"]
    assert numbers == sorted(set(numbers), reverse=True)


def test_the_command_line_prints_the_version_of_the_package():
    result = CliRunner().invoke(root_command, ["--version"])
    assert (result.exit_code, result.output) == (0, f"perdure {__version__}\n")
