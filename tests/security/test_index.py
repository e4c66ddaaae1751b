"""The list of attacks names tests that exist, and every file of this folder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", INDEX)))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_every_test_that_is_named_exists(path, name):
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^(?:async )?def {name}\(" if name else r"^(?:async )?def test_", text, re.MULTILINE)


def test_every_file_of_attacks_is_named():
    files = {f"tests/security/{each.name}" for each in Path(__file__).parent.glob("test_*.py")}
    assert files - {path for path, _ in NAMED} == {"tests/security/test_index.py"}
