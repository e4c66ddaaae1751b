"""The version of the package. `pyproject.toml` and the command line read it here; CHANGELOG.md has to agree with it."""

__version__ = "0.4.0"
