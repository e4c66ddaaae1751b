"""Full-text search in memories: any text is a query."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure._work.memory import text_search
from perdure._work.memory.database import find_or_add_scope, open_memory_file
from perdure._work.memory.record import build_record
from perdure._work.memory.rows import MemoryFilter, insert_memory
from perdure._work.memory.text_search import MAX_QUERY_WORDS, search_text, split_query_words
from perdure.context import MemoryScope


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A connection to a file with one memory, and the number of its scope."""
    connection = open_memory_file(str(tmp_path_factory.mktemp("queries") / "memory.db"))
    scope = find_or_add_scope(connection, MemoryScope())
    record = build_record({"id": "mem_1", "text": "words such as AND, OR, NOT and NEAR", "created_at": 1})
    insert_memory(connection, scope, record)
    yield connection, scope
    connection.close()


QUERY_PIECES = st.lists(
    st.one_of(
        st.text(max_size=8), st.sampled_from(["AND", "OR", "NOT", "NEAR(", '"', "*", ":", "^", "(", ")", "-", "text"])
    )
)


@given(st.one_of(st.text(max_size=80), QUERY_PIECES.map(" ".join)))
@example('"" OR ""')
@example("text : a")
def test_no_query_raises(filled, query):
    connection, scope = filled
    found = search_text(connection, scope, query, MemoryFilter())
    assert set(found) <= {1}
    assert all(0 <= relevance <= 1 for relevance in found.values())


def test_words_are_unique_in_lower_case_and_few():
    assert split_query_words("Red RED, blue-green; red!") == ["red", "blue", "green"]
    assert len(split_query_words(" ".join(f"w{number}" for number in range(1000)))) == MAX_QUERY_WORDS
    assert split_query_words("\0\ud800 ?") == []


@pytest.fixture
def fruits(tmp_path, monkeypatch):
    """Memories of which at most four matches of a word are ranked, and the function that finds their numbers."""
    monkeypatch.setattr(text_search, "MAX_MATCHES", 4)
    connection = open_memory_file(str(tmp_path / "memory.db"))
    scope = find_or_add_scope(connection, MemoryScope())
    texts = [
        "apple pear",
        "apple plum",
        "apple pear plum",
        "apple",
        "apple pear",
        "plum and nothing else",
        "apple pear",
    ]
    for number, text in enumerate(texts, 1):
        tags = ["green"] if number % 2 else []
        record = build_record({"id": f"mem_{number}", "text": text, "created_at": number, "tags": tags})
        insert_memory(connection, scope, record)

    def find(query, **conditions):
        return search_text(connection, scope, query, MemoryFilter(**conditions))

    yield find
    connection.close()


def test_rare_words_are_ranked_and_too_common_ones_are_left_out(fruits):
    found = fruits("plum apple")
    assert set(found) == {2, 3, 6}
    assert max(found.values()) == 1.0
    assert set(fruits("plum")) == {2, 3, 6}
    assert set(fruits("pear")) == {1, 3, 5, 7}  # as many as are ranked
    assert set(fruits("plum pear")) == {2, 3, 6}  # together they would be more
    assert fruits("banana") == {}
    assert set(fruits("banana plum", tags=["green"])) == {3}


def test_where_every_word_is_too_common_the_latest_with_all_of_them_are_found(fruits, monkeypatch):
    assert fruits("apple") == dict.fromkeys([7, 5, 4, 3, 2, 1], 1.0)
    assert list(fruits("apple")) == [7, 5, 4, 3, 2, 1]
    assert list(fruits("apple", since=3, until=5)) == [5, 4, 3]
    monkeypatch.setattr(text_search, "MAX_MATCHES", 2)
    assert list(fruits("apple plum")) == [3, 2]
    assert list(fruits("plum else pear")) == [6]  # one of them is rare
    assert list(fruits("plum pear", tags=["none"])) == []
    monkeypatch.setattr(text_search, "MAX_CANDIDATES", 2)
    assert list(fruits("apple")) == [7, 5]


def test_where_no_memory_has_all_of_the_common_words_those_with_the_rarest_are_found(fruits, monkeypatch):
    monkeypatch.setattr(text_search, "MAX_MATCHES", 2)
    assert list(fruits("plum pear", until=2)) == [2]  # the rarer of the two


def test_as_many_matches_as_are_candidates_are_ranked(fruits, monkeypatch):
    monkeypatch.setattr(text_search, "MAX_CANDIDATES", 2)
    assert len(fruits("plum")) == 2


def test_matches_are_ranked_by_their_length_and_number_up_to_the_limit(fruits: Any) -> None:
    found = fruits("pear")  # as many as are ranked
    assert {row: score for row, score in found.items() if score == 1.0} == dict.fromkeys([1, 5, 7], 1.0)
    assert 0.0 < found[3] < 1.0  # a longer text
    assert set(fruits("else plum")) == {2, 3, 6}  # together as many as are ranked
    assert next(iter(fruits("else plum"))) == 6
