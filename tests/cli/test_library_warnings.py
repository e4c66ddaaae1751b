"""Warnings that the library logs reach the person: a line each, once."""

import logging
import threading

import pytest

from perdure._cli.terminal.log import (
    MAX_CHARACTERS,
    MAX_WARNINGS,
    print_library_warnings,
    redirect_warnings,
)

LOGGER = logging.getLogger("perdure.stores.somewhere")


def printed(capsys):
    return capsys.readouterr().err.splitlines()


def test_a_warning_is_a_line_and_shown_once(capsys):
    with print_library_warnings():
        for _ in range(3):
            LOGGER.warning("the disk %s is slow", "a")
        LOGGER.error("it is gone")
        LOGGER.info("not this")
        logging.getLogger("other.library").warning("nor this")
    LOGGER.warning("nor this, which is later")
    lines = [each for each in printed(capsys) if each.startswith("warning: ")]
    assert lines == ["warning: the disk a is slow", "warning: it is gone"]


def test_the_error_with_which_a_run_ends_is_left_to_the_command(capsys):
    with print_library_warnings():
        LOGGER.error("run %s failed", "a", extra={"run_id": "a"})
        LOGGER.warning("a watcher failed", extra={"run_id": "a"})
    assert printed(capsys) == ["warning: a watcher failed"]


def test_an_error_is_named_without_its_traceback(capsys):
    with print_library_warnings():
        LOGGER.error("the watcher failed", exc_info=ValueError("no\nroom"))
    assert printed(capsys) == ["warning: the watcher failed: ValueError: no␊room"]


def test_text_of_others_cannot_steer_the_terminal_or_flood_it(capsys):
    with print_library_warnings():
        LOGGER.warning("a server wrote \x1b[2J\u202e\r\nwarning: forged %s", "x" * 5000)
        for number in range(2 * MAX_WARNINGS):
            LOGGER.warning("number %d", number)
    lines = printed(capsys)
    assert len(lines) == MAX_WARNINGS + 1
    assert lines[-1] == "warning: further warnings are not shown; PERDURE_DEBUG=1 shows all"
    assert all(each.isprintable() and len(each) <= MAX_CHARACTERS + 20 for each in lines)


def test_a_command_can_print_them_in_its_own_way(capsys):
    shown: list[str] = []
    with print_library_warnings(), redirect_warnings(shown.append):
        LOGGER.warning("here")
        thread = threading.Thread(target=LOGGER.warning, args=("from a thread",))
        thread.start()
        thread.join(30)
    assert shown == ["here", "from a thread"]
    with redirect_warnings(shown.append):  # in a program, where nobody prints them
        LOGGER.warning("not here")
    assert len(shown) == 2


def test_logs_are_shown_as_they_are_for_whoever_looks_for_mistakes(capsys, monkeypatch):
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    before = list(logging.getLogger("perdure").handlers)
    with print_library_warnings():
        assert logging.getLogger("perdure").handlers == before


@pytest.mark.parametrize("words", [["run", "-q", "hi"], ["sessions", "list"]])
def test_no_printer_is_left_after_a_command(perdure, words):
    before = list(logging.getLogger("perdure").handlers)
    assert perdure(*words).exit_code == 0
    assert logging.getLogger("perdure").handlers == before
