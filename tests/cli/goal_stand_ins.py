"""`perdure` with a model for goals whose maker never ends, for tests that need it in a process of its own."""

import asyncio
from typing import Any

from perdure._cli.main import main
from perdure.models import register
from tests.goals.roles import ScriptedRoles, verdict


async def stay(_request: Any) -> str:
    """Never reply."""
    await asyncio.Event().wait()
    return "never"


register(
    "goals",
    lambda name: ScriptedRoles(
        maker=[stay if name == "stays" else "Worked."], checker=[verdict("1", "2")]
    ).build_model(),
)

if __name__ == "__main__":
    main()
