"""Convert prompts, and content that is sent to a session, to messages."""

from collections.abc import Sequence
from typing import cast

from perdure.core.calling_run import add_labels_of_caller
from perdure.core.message import Content, Message

from .overrides import Prompt, is_conversation, to_user_message


def split_history_from_prompt(prompt: Prompt) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Split a prompt into the messages that precede it, if it is a conversation, and the message to answer."""
    if not is_conversation(prompt):
        return (), (to_user_message(cast("Content | Message", prompt)),)
    from .imported_messages import split_prompt_from_transcript  # at first use: most prompts are one message

    return split_prompt_from_transcript(cast("Sequence[Message]", prompt))


def to_user_or_assistant_message(content: Content | Message, origin: str) -> Message:
    """Convert content from a host program to a user message, or to an assistant message if it has that role.

    It has the labels of the run whose tool or engine sends it, if one does.
    """
    if not isinstance(content, Message) or content.role != "assistant":
        return add_labels_of_caller(to_user_message(content, origin))
    from .imported_messages import to_assistant_message  # at first use: hosts seldom speak for the assistant

    return add_labels_of_caller(to_assistant_message(content, origin))
