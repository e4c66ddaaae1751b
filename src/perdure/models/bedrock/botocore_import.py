"""Import botocore on first use: only Bedrock needs it to be installed."""

import importlib
from typing import Any

from perdure.core.error import ConfigError


def import_botocore(module: str) -> Any:
    """Import a submodule of botocore. Raise `ConfigError` if botocore is not installed."""
    try:
        return importlib.import_module(f"botocore.{module}")
    except ImportError as error:
        raise ConfigError(
            "Amazon Bedrock needs botocore, which is not installed: pip install 'perdure[bedrock]'"
        ) from error
