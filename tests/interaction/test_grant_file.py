"""What was allowed for ever, in a file: shared by processes, replaced as a whole, and never overwritten in part."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perdure import ConfigError, Grant, Permissions, StoreError
from perdure.permissions import GrantFile, Grants, PermissionRequest

FOR_EVER = Grant("forever", True, "shell", "run", "ls", "", "because")
HERE = Grant("session", True, "shell", "run", "", "s1")
REQUEST = PermissionRequest("c", "shell", "run", "ls", {}, "hash", required=True, session_id="s1")

WRITER = """
import sys
from perdure import Grant
from perdure.permissions import GrantFile
path, name, count = sys.argv[1:]
grants = GrantFile(path)
for number in range(int(count)):
    grants.remember(Grant("forever", True, "shell", "run", f"{name}-{number}"))
grants.revoke(Grant("forever", True, "shell", "run", f"{name}-0").grant_id)
"""


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "below" / "grants.jsonl"


def test_nothing_is_made_before_there_is_something_to_keep(path):
    grants = GrantFile(path)
    assert list(grants) == []
    grants.remember(HERE)
    assert list(grants) == [HERE]
    assert not path.parent.exists()
    assert repr(grants) == f"GrantFile({str(path)!r})"


def test_what_holds_for_ever_is_in_the_file_for_its_owner_alone(path):
    GrantFile(path).remember(FOR_EVER)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    assert msgspec.json.decode(path.read_bytes(), type=Grant) == FOR_EVER
    assert list(GrantFile(path)) == [FOR_EVER]
    assert [each.name for each in path.parent.iterdir()] == ["grants.jsonl"]


def test_another_one_sees_what_was_remembered_and_taken_back(path):
    one, other = GrantFile(path), GrantFile(path)
    one.remember(FOR_EVER)
    assert other.find(REQUEST) == FOR_EVER
    assert other.revoke(FOR_EVER.grant_id)
    assert not other.revoke(FOR_EVER.grant_id)
    assert one.find(REQUEST) is None
    assert path.read_bytes() == b""


def test_what_another_one_has_just_remembered_can_be_taken_back_at_once(path):
    one, other = GrantFile(path), GrantFile(path)
    one.remember(FOR_EVER)
    assert other.revoke(FOR_EVER.grant_id)
    one.remember(FOR_EVER)
    other.forget(FOR_EVER.grant_id)
    assert list(one) == []


def test_a_grant_of_a_session_is_taken_back_without_the_file(path):
    grants = GrantFile(path)
    grants.remember(HERE)
    assert (grants.revoke(HERE.grant_id), grants.revoke(HERE.grant_id), list(grants)) == (True, False, [])
    assert not path.exists()


def test_a_file_that_is_gone_grants_nothing_any_more(path):
    grants = GrantFile(path)
    grants.remember(FOR_EVER)
    path.unlink()
    assert list(grants) == []


def test_a_later_verdict_replaces_the_earlier_one(path):
    grants = GrantFile(path)
    grants.remember(FOR_EVER)
    no = msgspec.structs.replace(FOR_EVER, allow=False)
    grants.remember(no)
    assert list(GrantFile(path)) == [no]


def test_an_old_log_does_not_bring_back_what_the_file_has_not(path):
    grants = GrantFile(path)
    grants.restore(FOR_EVER)
    grants.restore(HERE)
    assert list(grants) == [HERE]
    grants.remember(FOR_EVER)
    grants.forget(FOR_EVER.grant_id)
    grants.forget(HERE.grant_id)
    assert list(grants) == []


def test_a_gate_takes_a_file(path):
    GrantFile(path).remember(FOR_EVER)
    assert Permissions(grants=GrantFile(path)).explain(REQUEST).grant == FOR_EVER
    assert isinstance(GrantFile(path), Grants)


@pytest.mark.parametrize("damage", [b"not json\n", b'{"scope":"forever"}\n', b"\xff\n", b"[" * 5000 + b"\n"])
def test_a_damaged_file_is_said_to_be_so_and_left_as_it_is(path, damage):
    grants = GrantFile(path)
    grants.remember(FOR_EVER)
    broken = path.read_bytes() + damage
    path.write_bytes(broken)
    for use in (lambda: grants.find(REQUEST), lambda: grants.remember(FOR_EVER), lambda: GrantFile(path)):
        with pytest.raises(StoreError, match=r"the grant file .* cannot be parsed \(line 2: .*\), so it is not used"):
            use()
    assert path.read_bytes() == broken


def test_lines_that_are_empty_or_not_for_ever_grant_nothing(path):
    path.parent.mkdir()
    denied = msgspec.structs.replace(FOR_EVER, allow=False)
    lines = [{**msgspec.to_builtins(each), "covers": each.covers} for each in (HERE, denied)]
    path.write_bytes(b"\n" + b"\n".join(map(msgspec.json.encode, lines)))
    assert list(GrantFile(path)) == [denied]


def test_a_line_that_does_not_say_what_it_covers_is_refused(path):
    path.parent.mkdir()
    path.write_bytes(b'{"scope":"forever","allow":false,"tool":"mail","action":"send","target":"*"}')
    with pytest.raises(StoreError, match=r"cannot be parsed \(line 1: .*`covers`\), so it is not used: correct it"):
        GrantFile(path)


def test_several_processes_lose_nothing_of_each_other(path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, "12"]) for name in ("one", "two", "three")
    ]
    assert [each.wait(30) for each in writers] == [0, 0, 0]
    targets = {each.target for each in GrantFile(path)}
    assert targets == {f"{name}-{number}" for name in ("one", "two", "three") for number in range(1, 12)}


@pytest.mark.parametrize("given", [5, None, ""])
def test_what_is_no_path_is_refused(given):
    with pytest.raises(ConfigError, match="give the path of a file"):
        GrantFile(given)
