"""ARCHITECTURE.md draws the tree as it is, in folders, and stays short."""

import re

from tests.docs.pages import ROOT, blocks_of

PACKAGE = ROOT / "src" / "perdure"
PAGE = ROOT / "ARCHITECTURE.md"
TREE = next(block.text for block in blocks_of(PAGE) if block.text.startswith("src/perdure/"))
MOST_WORDS = 1_500


def folders_of(place) -> set[str]:
    return {path.name for path in place.iterdir() if (path / "__init__.py").exists()}


def test_every_public_module_every_room_and_every_folder_of_the_kernel_is_in_the_tree():
    words = set(re.findall(r"\w+", TREE))
    public = {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("_")}
    assert sorted((public | folders_of(PACKAGE) | folders_of(PACKAGE / "_core")) - words) == []


def test_the_tree_names_no_folder_that_is_not_there_and_no_file():
    folders = {path.name for path in PACKAGE.rglob("*") if path.is_dir()}
    assert sorted(set(re.findall(r"(\w+)/", TREE.partition("\n")[2])) - folders) == []
    assert re.findall(r"\w+\.py\b", PAGE.read_text("utf-8")) == []


def test_the_page_can_be_read_in_five_minutes():
    assert len(PAGE.read_text("utf-8").split()) <= MOST_WORDS
