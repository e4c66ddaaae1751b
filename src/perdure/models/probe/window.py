"""How much a model can read at once. Above: the probe. Below: `ask.py`, `listing.py`."""

from perdure.core.error import ContextOverflow
from perdure.core.message import user
from perdure.models.listing import Fetching, told_window

from .ask import Asker
from .draft import Draft

_LONG_WORDS = 1_500_000
"""Words of a request that is to be too long for nearly everybody."""


async def window(asker: Asker, draft: Draft) -> None:
    """As the endpoint says of itself."""
    tokens = None
    if isinstance(asker.transport, Fetching):
        tokens = await told_window(asker.base_url, draft.profile.model, asker.auth, asker.transport)
    if tokens is not None:
        draft.note("context", f"{tokens} tokens", context_tokens=tokens)


async def learned_window(asker: Asker, draft: Draft) -> None:
    """As it says to a request that is much too long. That costs what such a request costs, if it is accepted."""
    if draft.profile.context_tokens is not None:
        return
    heard = await asker.ask("a request that is too long", draft.profile, user("hi " * _LONG_WORDS))
    if isinstance(heard.error, ContextOverflow) and heard.error.window_tokens is not None:
        tokens = heard.error.window_tokens
        draft.note("context", f"{tokens} tokens, by its own words", context_tokens=tokens)
