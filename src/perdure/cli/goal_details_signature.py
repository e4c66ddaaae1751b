"""Sign the options that are stored with a goal, and verify them before the goal is resumed.

`perdure goal resume` takes the folder, the model and a command from the store. So they count only if this runtime
has stored them: another program that can write to the store chooses no command.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.core.error import ConfigError

if TYPE_CHECKING:
    from perdure.goals import GoalRecord

_PURPOSE: Final = "goal"
_SIGNATURE: Final = "signature"


def sign_details(goal_id: str, workdir: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details to store with a goal, with a signature for its id and folder."""
    from perdure.files.runtime_key import load_runtime_key

    signature = load_runtime_key().sign(_PURPOSE, _build_message(goal_id, workdir, details))
    return {**details, _SIGNATURE: signature}


def check_details(record: "GoalRecord") -> None:
    """Raise `ConfigError` unless this runtime has signed what is stored with a goal."""
    from perdure.files.runtime_key import KEY_VARIABLE, load_runtime_key

    details = dict(record.details)
    signature = details.pop(_SIGNATURE, None)
    message = _build_message(record.goal_id, record.workdir, details)
    if not isinstance(signature, str) or not load_runtime_key().is_signed(_PURPOSE, message, signature):
        raise ConfigError(
            f"the folder and the options of goal {record.goal_id} were not stored by this runtime: by another program, "
            f"or one with another key ({KEY_VARIABLE}); start a new goal"
        )


def _build_message(goal_id: str, workdir: str, details: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode([goal_id, workdir, dict(details)], order="deterministic")
