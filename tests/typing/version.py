"""What type checkers make of the version. Files here are checked by mypy and basedpyright, strictly, and never run."""

from perdure import __version__


def version_is_text() -> str:
    return __version__
