"""What all tests share: their plugins, and how hypothesis looks for counterexamples."""

import os
import signal

import hypothesis

pytest_plugins = ["pytester", "tests.always_resume", "tests.needs", "tests.stores.postgres_server"]

# A slow machine is no counterexample. The rest is left to hypothesis, which repeats itself under CI.
EXAMPLES = 1_000 if os.environ.get("PERDURE_SEARCH") == "long" else 50
hypothesis.settings.register_profile("perdure", deadline=None, max_examples=EXAMPLES)
hypothesis.settings.load_profile("perdure")


# A shell starts what runs in its background with Ctrl-C ignored, `nohup` what it runs with hang-ups ignored; whatever
# a test starts, and sends such a signal, would ignore it as well, and the test would wait for ever. What a handler
# takes instead is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
