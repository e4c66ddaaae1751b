"""The command line as in its own tests."""

from tests.cli.conftest import perdure, shell, warm_server

__all__ = ["perdure", "shell", "warm_server"]
