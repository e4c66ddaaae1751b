"""`isinstance`, `hasattr`, `type` and `fspath` without type hints, so that type checkers do not narrow types."""

import os
from collections.abc import Callable
from typing import Any

is_a: Callable[[Any, Any], bool] = isinstance
has: Callable[[Any, str], bool] = hasattr
type_of: Callable[[Any], Any] = type
fspath: Callable[[Any], Any] = os.fspath
