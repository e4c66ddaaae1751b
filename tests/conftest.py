"""What all tests share: their plugins, and how hypothesis looks for counterexamples."""

import hypothesis

pytest_plugins = ["pytester", "tests.needs", "tests.stores.postgres_server"]

# A slow machine is no counterexample. The rest is left to hypothesis, which repeats itself under CI.
hypothesis.settings.register_profile("windlass", deadline=None)
hypothesis.settings.load_profile("windlass")
