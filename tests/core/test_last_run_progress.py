"""The progress of a session's last run, from the events that stores see."""

from perdure._core.log.status import GIVEN_BY_SETTING, NO_RUN, REPORTED_SETTING
from perdure.engines import find_last_run_progress
from perdure.events import Custom, Entry, RunEnded, RunResumed, RunStarted, RunWaiting, SessionConfigured
from perdure.stores import LastRunProgress


def entries(*events):
    return [Entry(seq, 1.0, event) for seq, event in enumerate(events, 1)]


def test_a_run_is_cut_off_until_it_ends():
    assert find_last_run_progress(entries(RunStarted("a"))) == LastRunProgress("cut_off")
    assert find_last_run_progress(entries(RunWaiting(("q",)), RunResumed())) == LastRunProgress("cut_off")
    assert find_last_run_progress(entries(RunStarted("a"), RunEnded("done"), Custom("later"))) == NO_RUN
    assert find_last_run_progress(entries(RunEnded("done"), RunStarted("a"))) == LastRunProgress("cut_off")


def test_a_waiting_run_tells_when_it_is_due():
    assert find_last_run_progress(entries(RunStarted("a"), RunWaiting(("q",), 7.0))) == LastRunProgress("waiting", 7.0)
    assert find_last_run_progress(entries(RunWaiting(("q",)))) == LastRunProgress("waiting")


def test_a_task_is_to_be_done_from_the_entry_on_that_says_who_gave_it():
    given = SessionConfigured({GIVEN_BY_SETTING: "above"})
    assert find_last_run_progress(entries(given)) == LastRunProgress("cut_off")
    assert find_last_run_progress(entries(given, Custom("note"))) == LastRunProgress("cut_off")
    assert find_last_run_progress(entries(given, RunStarted("a"), RunEnded("done"))) == NO_RUN
    assert find_last_run_progress(entries(SessionConfigured({GIVEN_BY_SETTING: ""}))) == NO_RUN
    assert find_last_run_progress(entries(SessionConfigured({"title": "x"}))) is None


def test_a_task_that_has_ended_is_cut_off_until_its_end_was_reported():
    ended = RunEnded("done", is_unreported=True)
    assert find_last_run_progress(entries(RunStarted("a"), ended, Custom("note"))) == LastRunProgress("cut_off")
    reported = SessionConfigured({GIVEN_BY_SETTING: "above", REPORTED_SETTING: True})
    assert find_last_run_progress(entries(RunStarted("a"), ended, reported)) == NO_RUN


def test_other_events_and_the_runs_of_subagents_change_nothing():
    assert find_last_run_progress([]) is None
    assert (
        find_last_run_progress(entries(Custom("note"), RunStarted("b", path="b"), RunEnded("done", path="b"))) is None
    )
