"""Version number of the package, read by `pyproject.toml` and the command line.

CHANGELOG.md has to agree with it.
"""

__version__ = "1.0.0rc1"
