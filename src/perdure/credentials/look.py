"""Ways to look at a value of any type from which no type checker draws conclusions. Above: the rest of this part."""

import os
from collections.abc import Callable
from typing import Any

is_a: Callable[[Any, Any], bool] = isinstance
has: Callable[[Any, str], bool] = hasattr
type_of: Callable[[Any], Any] = type
fspath: Callable[[Any], Any] = os.fspath
