"""The file of what a user has trusted: what is in it, who may write it, and that it is replaced as a whole."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from perdure import ConfigError
from perdure.context.trusted_hashes_file import TrustedItem, TrustFile

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


def test_the_file_and_its_folder_belong_to_the_user_alone(path: Path) -> None:
    TrustFile(str(path)).add_trusted(SKILL)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    assert [each.name for each in path.parent.iterdir()] == ["trust.json"]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_used(path: Path, mode: int) -> None:
    file = TrustFile(str(path))
    file.add_trusted(SKILL)
    path.chmod(mode)
    with pytest.raises(ConfigError) as raised:
        file.load_trusted()
    assert str(raised.value) == (
        f"others can write to {str(path)!r}, so it is not used: chmod 600 it, and check its content"
    )
    path.chmod(0o644)
    assert file.load_trusted() == (SKILL,)


@pytest.mark.parametrize("content", [b"no json", b"\xff", b'{"trusted": [{"digest": 3}]}'])
def test_a_damaged_file_is_not_used(path: Path, content: bytes) -> None:
    file = TrustFile(str(path))
    file.add_trusted(SKILL)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot be parsed \(.*\), so it is not used: delete it$"):
        file.load_trusted()
    with pytest.raises(ConfigError, match="cannot be parsed"):
        file.add_trusted(ROLE)
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for path in (tmp_path, tmp_path / "link"):
        with pytest.raises(ConfigError, match="the trust file cannot be read: "):
            TrustFile(str(path)).load_trusted()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TrustFile(str(path))
    file.add_trusted(SKILL)

    def fail(*_given: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="the disk is full"):
        file.add_trusted(ROLE)
    assert file.load_trusted() == (SKILL,)
    assert [each.name for each in path.parent.iterdir()] == ["trust.json"]


def test_a_path_may_begin_with_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert TrustFile("~/trust.json").path == str(tmp_path / "trust.json")
    monkeypatch.chdir(tmp_path)
    assert TrustFile("trust.json").path == str(tmp_path / "trust.json")
