"""botocore, imported when it is first needed: who speaks to others need not have it. Above: `auth.py`,
`eventstream.py`. Below: nothing.
"""

import importlib
from typing import Any

from perdure.core.error import ConfigError


def botocore(module: str) -> Any:
    """A module of it. Raises `ConfigError` when it is not installed."""
    try:
        return importlib.import_module(f"botocore.{module}")
    except ImportError as error:
        raise ConfigError(
            "Amazon Bedrock is spoken to with the help of botocore, which is not installed: "
            "pip install 'perdure[bedrock]'"
        ) from error
