"""Ids that are reserved for sessions of the runtime: compared as they look, and refused by whoever takes an id."""

import pytest

from perdure import ConfigError
from perdure._core.log.reserved_ids import (
    RuntimeSessionId,
    check_not_reserved,
    check_part_not_reserved,
    find_reserved_name,
    is_listed,
    is_schedule_session,
)
from perdure.stores import MemoryStore, namespaced


@pytest.mark.parametrize(
    ("session_id", "name"),
    [
        *[("schedules/x", "schedules"), ("Schedules", "schedules"), ("a//schedules/./x", "schedules")],
        *[("b/../schedules/x", "schedules"), ("%2573chedules", "schedules"), ("\uff53chedules", "schedules")],
        *[("sche\x00dules", "schedules"), ("evaluation-1", "evaluation-"), ("a/Evaluation-1", "evaluation-")],
        *[("x", ""), ("schedules/a/b", ""), ("evaluation-1/x", ""), ("é", ""), ("%", ""), ("", ""), ("..", "")],
    ],
    ids=ascii,
)
def test_a_reserved_name_is_found_in_every_spelling(session_id: str, name: str):
    assert find_reserved_name(session_id) == name


def test_the_id_of_a_session_is_looked_at_as_the_whole_store_has_it():
    store = MemoryStore()
    assert check_not_reserved("report") == "report"
    assert check_not_reserved("report", namespaced(store, "acme")) == "report"
    with pytest.raises(ConfigError, match="'schedules/report' is reserved for the runtime"):
        check_not_reserved("schedules/report", namespaced(store, "acme"))
    assert (is_listed(store, "report"), is_listed(store, "schedules/report")) == (True, False)
    assert is_schedule_session("acme/schedules/report")


def test_the_runtime_opens_its_own_sessions_by_ids_that_become_plain_texts():
    name = check_not_reserved(RuntimeSessionId("evaluation-1"), MemoryStore())
    assert (name, type(name)) == ("evaluation-1", str)


def test_a_name_that_leads_to_sessions_of_the_runtime_is_refused_for_a_part():
    check_part_not_reserved("acme")
    with pytest.raises(ConfigError, match="a client cannot be called 'Schedules'"):
        check_part_not_reserved("Schedules", "a client")
