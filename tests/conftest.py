"""What all tests share: their plugins, their seed, and how hypothesis looks for counterexamples."""

import gc
import os
import shutil
import signal
import tempfile

import hypothesis
import pytest

from tests.seeds import SEED

pytest_plugins = ["pytester", "tests.always_resume", "tests.hang_watch", "tests.needs", "tests.stores.postgres_server"]

# A slow machine is no counterexample. Hypothesis would repeat itself under CI, and look at one path for ever.
EXAMPLES = 1_000 if os.environ.get("PERDURE_SEARCH") == "long" else 20
hypothesis.settings.register_profile(
    "perdure", deadline=None, max_examples=EXAMPLES, derandomize=False, print_blob=True
)
hypothesis.settings.load_profile("perdure")


# A shell starts what runs in its background with Ctrl-C ignored, `nohup` what it runs with hang-ups ignored; whatever
# a test starts, and sends such a signal, would ignore it as well, and the test would wait for ever. What a handler
# takes instead is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Let hypothesis draw from the same seed as all other searches; leave garbage until the tests are collected."""
    gc.disable()
    # Tools record there what they write after text of others: that is no business of whoever runs the tests.
    home = tempfile.mkdtemp(prefix="perdure-tests-")
    before = os.environ.get("PERDURE_HOME")
    os.environ["PERDURE_HOME"] = home
    config.add_cleanup(lambda: _remove_home(home, before))
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = SEED


def _remove_home(home, before):
    os.environ.pop("PERDURE_HOME")
    if before is not None:
        os.environ["PERDURE_HOME"] = before
    shutil.rmtree(home, ignore_errors=True)


def pytest_collection_finish():
    """Leave what was collected out of every later collection of garbage: it is large, and lasts as long as the run."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_report_header():
    return f"seed: {SEED} (PERDURE_SEED={SEED} repeats this run)"


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.line(f"seed: {SEED}; PERDURE_SEED={SEED} draws the same random numbers again")
