"""Lines of exported memories: what they become, and the ids that they get in another scope."""

import pytest

from perdure import ConfigError
from perdure._work.memory.long_term import build_imported_id, parse_memory_line
from perdure.context import MemoryRecord, MemoryScope

LINE = b'{"id": "mem_1", "text": "Tulips.", "created_at": 5, "pinned": true, "labels": ["private"]}'
UNTRUSTED = b'{"id": "mem_1", "text": "Tulips.", "created_at": 5, "pinned": true, "labels": ["untrusted"]}'


@pytest.mark.parametrize(
    ("line", "trusted", "labels", "pinned"),
    [
        (LINE, True, ("private",), True),
        (LINE, False, ("private", "imported"), False),
        (UNTRUSTED, True, ("untrusted",), False),
        (UNTRUSTED, False, ("untrusted", "imported"), False),
        (LINE.decode(), True, ("private",), True),
    ],
)
def test_a_line_is_a_memory_that_is_pinned_only_if_it_is_trusted(
    line: bytes | str, trusted: bool, labels: tuple[str, ...], pinned: bool
) -> None:
    found = parse_memory_line(line, 1, trusted=trusted)
    assert found == MemoryRecord(id="mem_1", text="Tulips.", created_at=5, labels=found.labels, pinned=pinned)
    assert sorted(found.labels) == sorted(labels)


def test_a_line_that_is_no_memory_is_named_with_the_reason() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_memory_line(b'{"id": "m", "text": "", "created_at": 1}', 7, trusted=True)
    assert str(raised.value) == (
        "line 7 is no memory: remember(text=''): give the text to remember; nothing was added from there on"
    )


def test_an_id_in_another_scope_depends_on_all_of_the_scope_and_is_always_the_same() -> None:
    scopes = [MemoryScope(), MemoryScope(user="a"), MemoryScope(project="a"), MemoryScope(user="a", project="b")]
    ids = [build_imported_id(name, scope) for name in ("mem_1", "mem_2") for scope in scopes]
    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {36}
    assert build_imported_id("mem_1", scopes[1]) == ids[1]
    assert all(each.startswith("mem_") for each in ids)
