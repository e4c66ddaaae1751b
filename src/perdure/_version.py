"""The version of the package, alone in a file so that reading it costs nothing. `pyproject.toml` takes it from here."""

__version__ = "0.1.0"
