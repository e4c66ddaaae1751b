"""The command line as in its own tests."""

from tests.cli.conftest import perdure, person, shell, warm_server

__all__ = ["perdure", "person", "shell", "warm_server"]
