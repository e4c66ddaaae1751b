"""The file of what a user has trusted: what is in it, who may write it, and that it is replaced as a whole."""

import json
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure._context.trusted_hashes import TrustedItem, TrustFile

SKILL = TrustedItem("d1", "/skills/a", "a", {"SKILL.md": "f1"})
ROLE = TrustedItem("d2", "/roles/b.md")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "trust.json"


def test_what_is_trusted_is_kept_in_order_and_replaced_by_its_path(path: Path) -> None:
    file = TrustFile(str(path))
    assert file.load_trusted() == ()
    file.add_trusted(SKILL)
    file.add_trusted(ROLE)
    changed = TrustedItem("d3", "/skills/a", "a")
    file.add_trusted(changed)
    assert TrustFile(str(path)).load_trusted() == (ROLE, changed)
    assert path.read_text() == json.dumps(
        {"trusted": [{"digest": "d2", "path": "/roles/b.md"}, {"digest": "d3", "path": "/skills/a", "name": "a"}]},
        indent=2,
    ) + "\n"  # fmt: skip


def test_trust_is_revoked_once(path: Path) -> None:
    file = TrustFile(str(path))
    assert not file.remove_trusted("/skills/a")
    assert not path.exists()
    file.add_trusted(SKILL)
    file.add_trusted(ROLE)
    assert [file.remove_trusted("/skills/a") for _ in range(2)] == [True, False]
    assert file.load_trusted() == (ROLE,)


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_file_in_a_folder_that_others_can_write_to_is_not_used(path: Path, mode: int) -> None:
    file = TrustFile(str(path))
    path.parent.mkdir()
    path.parent.chmod(mode)
    assert file.load_trusted() == ()
    path.parent.chmod(0o700)
    file.add_trusted(SKILL)
    path.parent.chmod(mode)
    with pytest.raises(ConfigError) as refused:
        file.add_trusted(ROLE)
    assert str(refused.value) == (
        f"others can write to {str(path.parent)!r}, so trust.json in it is not used: chmod 700 it, and check the file"
    )
    path.parent.chmod(0o755)
    assert file.load_trusted() == (SKILL,)


def test_a_path_may_begin_with_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert TrustFile("~/trust.json").path == str(tmp_path / "trust.json")
    monkeypatch.chdir(tmp_path)
    assert TrustFile("trust.json").path == str(tmp_path / "trust.json")
