"""What hides a file whose name means secrets, by what git has of it; nothing is run."""

import hashlib
import os
from pathlib import Path

import pytest

from perdure._tools.sandbox.bubblewrap import CoverMountSources
from perdure._tools.sandbox.covers import GitIndex, choose_covers, cover_secrets

COVERS = CoverMountSources("/covers/folder", "/covers/file", "/covers/closed")


def build_index(*entries: tuple[bytes, bytes], version: int = 2, mode: int = 0o100644, flags: int = 0) -> bytes:
    """The index of a repository that has these paths with these contents."""
    data = b"DIRC" + version.to_bytes(4, "big") + len(entries).to_bytes(4, "big")
    for path, content in sorted(entries):
        digest = hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).digest()
        entry = bytes(24) + mode.to_bytes(4, "big") + bytes(12) + digest + (len(path) | flags).to_bytes(2, "big") + path
        data += entry + bytes(8 - len(entry) % 8)
    return data + bytes(20)


@pytest.fixture
def root(tmp_path):
    (tmp_path / ".git").mkdir()
    return tmp_path


def choose(root: Path, *names: str) -> dict[str, str]:
    """What covers each path: `shown`, `empty`, `closed`, or the options of a folder."""
    paths = [str(root / each) for each in names]
    found = {}
    for path, options in choose_covers(str(root), paths, COVERS):
        kinds = {
            (): "shown",
            ("--ro-bind", COVERS.file, path): "empty",
            ("--ro-bind", COVERS.closed, path): "closed",
            ("--tmpfs", path): "empty folder",
            ("--perms", "0000", "--tmpfs", path): "closed folder",
        }
        found[os.path.relpath(path, root)] = kinds[tuple(options)]
    return found


def test_without_a_repository_files_and_folders_are_empty(tmp_path):
    (tmp_path / ".env").write_text("secret")
    (tmp_path / ".ssh").mkdir()
    assert choose(tmp_path, ".env", ".ssh") == {".env": "empty", ".ssh": "empty folder"}
    assert choose(tmp_path) == {}
    assert [*cover_secrets(str(tmp_path), [str(tmp_path / ".env")], COVERS)] == [
        "--ro-bind", COVERS.file, str(tmp_path / ".env"),
    ]  # fmt: skip


def test_what_git_has_as_it_is_is_shown_and_what_was_changed_is_closed(root):
    index = build_index((b".env", b"public"), (b"app/.env", b"old"), (b".ssh/config", b"x"))
    (root / ".git" / "index").write_bytes(index)
    (root / "app").mkdir()
    (root / ".ssh").mkdir()
    (root / ".env").write_text("public")
    (root / "app" / ".env").write_text("new")
    (root / "id_rsa").write_text("secret")
    assert choose(root, ".env", "app/.env", "id_rsa", ".ssh", "missing.pem") == {
        ".env": "shown",
        "app/.env": "closed",
        "id_rsa": "closed",
        ".ssh": "closed folder",
        "missing.pem": "closed",
    }


def test_what_git_ignores_is_empty_unless_git_has_it(root):
    (root / ".git" / "index").write_bytes(build_index((b"b.env", b"public")))
    (root / ".git" / "info").mkdir()
    (root / ".git" / "info" / "exclude").write_text("excluded.pem\n")
    (root / ".gitignore").write_text("*.env\nkeys/\n")
    (root / "deep").mkdir()
    (root / "deep" / ".gitignore").write_text("*.pem\n!kept.env\n")
    (root / "keys").mkdir()
    (root / "b.env").write_text("changed")
    assert choose(root, "a.env", "b.env", "excluded.pem", "deep/x.pem", "deep/kept.env", "x.pem", "keys/x.pem") == {
        "a.env": "empty",
        "b.env": "closed",
        "excluded.pem": "empty",
        "deep/x.pem": "empty",
        "deep/kept.env": "closed",
        "x.pem": "closed",
        "keys/x.pem": "empty",
    }
    (root / "linked").mkdir()
    (root / "linked" / ".gitignore").symlink_to("../deep/.gitignore")
    assert choose(root, "linked/x.pem") == {"linked/x.pem": "closed"}


def test_a_repository_without_an_index_has_nothing_yet(root):
    (root / ".gitignore").write_text(".env\n")
    (root / ".ssh").mkdir()
    assert choose(root, ".env", "id_rsa", ".ssh") == {".env": "empty", "id_rsa": "closed", ".ssh": "empty folder"}


@pytest.mark.parametrize("index", ["folder", "shared", "version 4", "no index"])
def test_of_an_index_that_cannot_be_read_everything_is_closed(root, index):
    (root / ".gitignore").write_text(".env\n")
    (root / ".env").write_text("public")
    (root / ".ssh").mkdir()
    place = root / ".git" / "index"
    if index == "folder":
        place.mkdir()
    else:
        data = build_index((b".env", b"public"), version=4 if index == "version 4" else 2)
        place.write_bytes(b"XXXX" + data[4:] if index == "no index" else data)
    if index == "shared":
        (root / ".git" / "sharedindex.0123").touch()
    assert choose(root, ".env", ".ssh") == {".env": "closed", ".ssh": "closed folder"}


def test_a_repository_below_closes_its_files_and_a_work_tree_all_that_git_has(root, tmp_path_factory):
    (root / "app" / ".git").mkdir(parents=True)
    (root / ".gitignore").write_text("*.env\n")
    (root / "app" / "secrets").mkdir()
    assert choose(root, "app/x.env", "app/secrets", "x.env") == {
        "app/x.env": "closed",
        "app/secrets": "closed folder",
        "x.env": "empty",
    }
    tree = tmp_path_factory.mktemp("tree")
    (tree / ".git").write_text(f"gitdir: {root / '.git'}\n")
    (root / ".git" / "index").write_bytes(build_index((b"a.env", b"public")))
    (tree / "a.env").write_text("public")
    (tree / ".gitignore").write_text("*.env\n")
    assert choose(tree, "a.env", "b.env", "id_rsa") == {"a.env": "closed", "b.env": "empty", "id_rsa": "closed"}
    (tree / ".git").write_text("gitdir: missing\n")
    assert choose(tree, "b.env") == {"b.env": "closed"}


def test_only_a_regular_file_without_another_mark_has_a_content():
    for mode, flags, has in ((0o100644, 0, True), (0o120000, 0, False), (0o100644, 0x1000, False)):
        index = GitIndex(build_index((b".env", b"public"), mode=mode, flags=flags))
        assert index.has_content(b".env", b"public") is has
    index = GitIndex(build_index((b"a/.env", b"one"), (b".env", b"two"), (b"b/.env", b"three")))
    assert [index.has_content(each, b"two") for each in (b".env", b"a/.env", b"env", b"")] == [
        True,
        False,
        False,
        False,
    ]
    assert index.has_content(b"b/.env", b"three")
    assert [index.may_have(each) for each in (b".env", b"a", b"other")] == [True, True, False]
    assert [GitIndex(b"").may_have(b"x"), GitIndex(b"").has_content(b"x", b"")] == [True, False]


def test_a_file_of_more_than_a_megabyte_is_not_compared(root):
    content = b"x" * (1024 * 1024)
    (root / ".git" / "index").write_bytes(build_index((b"a.pem", content), (b"b.pem", content + b"x")))
    (root / "a.pem").write_bytes(content)
    (root / "b.pem").write_bytes(content + b"x")
    assert choose(root, "a.pem", "b.pem") == {"a.pem": "shown", "b.pem": "closed"}
