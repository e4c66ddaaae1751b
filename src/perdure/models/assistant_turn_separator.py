"""The filler message sent between two assistant messages in a row, for providers that require alternating roles.

Such are the draft and the revised answer of the engine `reflect`. Many providers and chat templates want the roles to
alternate, and refuse two assistant messages in a row. Others join them: then thinking, which has to begin a turn, would
be in the middle of one.
"""

from perdure.core.message import user

CONTINUE_MESSAGE = user("Continue.")
"""User message that is sent between two assistant messages. It is no part of the conversation."""
