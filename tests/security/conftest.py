"""The command line as in its own tests."""

from tests.cli.conftest import perdure, shell

__all__ = ["perdure", "shell"]
