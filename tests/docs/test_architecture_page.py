"""ARCHITECTURE.md draws the tree as it is."""

import re

from tests.docs.pages import ROOT, blocks_of

PACKAGE = ROOT / "src" / "perdure"
TREE = next(block.text for block in blocks_of(ROOT / "ARCHITECTURE.md") if block.text.startswith("src/perdure/"))


def modules_of(folder) -> set[str]:
    return {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}


def test_every_folder_and_every_module_of_the_core_and_the_assembly_is_in_the_tree():
    folders = {f"{path.name}/" for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    drawn = set(re.findall(r"[\w/.]+", TREE))
    assert sorted(folders - drawn) == []
    words = set(re.findall(r"\w+", TREE))
    assert sorted((modules_of(PACKAGE) | modules_of(PACKAGE / "core")) - words) == []


def test_the_tree_names_nothing_that_is_not_there():
    named = set(re.findall(r"(\w+)\.py\b", TREE)) - {"__init__"}
    assert sorted(named - modules_of(PACKAGE) - modules_of(PACKAGE / "core")) == []
    folders = re.findall(r"^  (\w+)/", TREE, re.MULTILINE)
    assert [folder for folder in folders if not (PACKAGE / folder).is_dir()] == []
