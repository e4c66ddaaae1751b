"""The first screen of the README: what it is, a few lines that run, the two commands, the map."""

import re

from tests.docs.pages import ROOT, blocks_of

README = ROOT / "README.md"
SCREEN = 50
"""Lines that a person sees without scrolling much."""


def test_the_first_screen_ends_with_the_map():
    first, _, rest = README.read_text(encoding="utf-8").partition("## Map\n")
    table = re.split(r"\n## ", rest)[0]
    assert len(first.splitlines()) + len(table.splitlines()) <= SCREEN


def test_the_example_has_twelve_lines_or_fewer():
    example = next(block for block in blocks_of(README) if block.language == "python")
    assert len([line for line in example.text.splitlines() if line and not line.startswith("#>")]) <= 12


def test_the_two_commands_are_targets_of_the_makefile():
    commands = next(block for block in blocks_of(README) if block.language == "sh")
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"^make (\S+)", commands.text, re.MULTILINE)
    assert named == ["run", "test"]
    assert set(named) <= set(targets)


def test_every_folder_of_the_repository_is_on_the_map():
    _, _, rest = README.read_text(encoding="utf-8").partition("## Map\n")
    on_the_map = set(re.findall(r"\]\(([\w/]+)", rest))
    folders = {"src/perdure", *(each.name for each in ROOT.iterdir() if each.is_dir() and each.name.isidentifier())}
    folders -= {"src", "build", "dist"}
    assert folders <= on_the_map
