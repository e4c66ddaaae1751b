"""What became of a request, from what the transport has seen of it."""

import pytest

from perdure._mcp.client.delivery import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT, RequestDelivery

JSON = "application/json"
OWN = -32602
"""A code that the SDK never makes up itself."""


def state(record):
    """All that callers ask a record."""
    return {
        "was_sent": record.was_sent,
        "has_arrived": record.has_arrived,
        "was_refused": record.was_refused,
        "has_lost_session": record.has_lost_session,
        "is_answer": record.is_answer(OWN),
        "describe": record.describe(),
        "describe_failure": record.describe_failure(),
    }


def answered(status, content_type=JSON, *, has_rpc_error=False):
    record = RequestDelivery()
    record.note_answer(status, content_type)
    record.has_rpc_error = has_rpc_error
    return record


def test_over_pipes_every_error_is_the_answer_of_the_server():
    assert state(RequestDelivery()) == {
        "was_sent": True,
        "has_arrived": False,
        "was_refused": False,
        "has_lost_session": True,
        "is_answer": True,
        "describe": "the connection was lost",
        "describe_failure": "",
    }


@pytest.mark.parametrize("code", [CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR])
def test_a_code_that_the_sdk_makes_up_itself_is_no_answer(code):
    assert not RequestDelivery().is_answer(code)
    assert not answered(200).is_answer(code)


@pytest.mark.parametrize(
    ("record", "is_answer"),
    [
        (answered(200), True),
        (answered(200, "text/event-stream"), True),
        (answered(200, "text/html"), False),
        (answered(199), False),
        (answered(202), False),
        (answered(299), False),
        (answered(200, "text/html", has_rpc_error=True), False),
        (answered(300, has_rpc_error=True), True),
        (answered(400), False),
        (answered(400, has_rpc_error=True), True),
        (answered(500, "text/html"), False),
        (answered(500, "text/html", has_rpc_error=True), True),
    ],
)
def test_over_http_an_error_is_an_answer_only_in_a_message_of_the_server(record, is_answer):
    assert record.is_answer(OWN) is is_answer


@pytest.mark.parametrize(
    ("status", "is_lost"), [(200, False), (400, True), (401, False), (404, True), (405, False), (500, False)]
)
def test_a_session_is_lost_where_the_server_does_not_know_it(status, is_lost):
    assert answered(status).has_lost_session is is_lost


@pytest.mark.parametrize(("status", "said"), [(200, ""), (399, ""), (400, "HTTP status 400"), (503, "HTTP status 503")])
def test_an_http_error_says_why_there_is_no_connection(status, said):
    record = answered(status)
    assert record.describe() == f"HTTP status {status}"
    assert record.describe_failure() == said


def test_a_request_that_wants_a_login_was_not_carried_out():
    assert state(answered(401)) == {
        "was_sent": True,
        "has_arrived": False,
        "was_refused": True,
        "has_lost_session": False,
        "is_answer": False,
        "describe": "HTTP status 401",
        "describe_failure": "it wants a login (HTTP status 401), as with perdure mcp login",
    }


def test_a_login_that_is_wanted_after_a_first_round_refuses_only_the_next_one():
    record = answered(200)
    record.note_answer(401, JSON)
    assert (record.was_refused, record.has_arrived, record.status) == (False, True, 401)
    assert record.describe_failure() == "HTTP status 401"


def test_a_server_that_cannot_be_reached_has_got_nothing():
    record = RequestDelivery()
    record.note_unsent("the server cannot be reached: refused")
    assert state(record) == {
        "was_sent": False,
        "has_arrived": False,
        "was_refused": False,
        "has_lost_session": True,
        "is_answer": False,
        "describe": "the server cannot be reached: refused",
        "describe_failure": "the server cannot be reached: refused",
    }


def test_a_server_that_was_reached_once_may_have_carried_the_request_out():
    record = answered(200)
    record.note_unsent("the server cannot be reached: refused")
    assert (record.was_sent, record.has_arrived, record.has_lost_session) == (True, True, False)


def test_a_request_whose_answer_was_lost_may_have_been_carried_out():
    record = RequestDelivery()
    record.note_unsent("the server cannot be reached: refused")
    record.note_lost("the connection was lost: ReadError")
    assert state(record) == {
        "was_sent": True,
        "has_arrived": True,
        "was_refused": False,
        "has_lost_session": True,
        "is_answer": False,
        "describe": "the connection was lost: ReadError",
        "describe_failure": "the connection was lost: ReadError",
    }


def test_an_answer_takes_the_place_of_an_earlier_one():
    record = answered(500, has_rpc_error=True)
    record.note_answer(200, "text/event-stream")
    assert (record.status, record.content_type, record.has_rpc_error) == (200, "text/event-stream", False)
