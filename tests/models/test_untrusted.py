"""JSON of somebody else: what is not as it should be counts as absent."""

from windlass.models.untrusted import count, mapping, mappings, text


def test_what_is_as_it_should_be_is_taken() -> None:
    assert mapping({"a": 1}) == {"a": 1}
    assert mappings([{"a": 1}, 2, {}]) == [{"a": 1}, {}]
    assert text("a") == "a"
    assert count(3) == 3


def test_anything_else_counts_as_absent() -> None:
    assert mapping([1]) == {}
    assert mappings({"a": 1}) == []
    assert text(None) == ""
    assert [count(each) for each in (-1, True, "3", 2.5, None)] == [0, 0, 0, 0, 0]
