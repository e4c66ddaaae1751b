"""Full-text search in memories: any text is a query."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.memory.memory_database import find_or_add_scope, open_memory_file
from perdure.memory.memory_record import MemoryScope, build_record
from perdure.memory.memory_table_operations import MemoryFilter, insert_memory
from perdure.memory.text_search import MAX_QUERY_WORDS, search_text, split_query_words


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
