"""A folder is marked incomplete only as long as rows of its page have no test."""

import pytest

from tests.coming_from.shows import without_a_test
from tests.coming_from.test_rows import is_complete
from tests.docs.reference_names import SYSTEMS


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_page_whose_rows_all_have_tests_is_not_marked_incomplete(system):
    assert is_complete(system) or without_a_test(system), f"delete the file INCOMPLETE in the folder of {system}"
