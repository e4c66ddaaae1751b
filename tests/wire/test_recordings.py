"""Every recording is of an API that some suite reads, or it is named here with the reason why none does."""

import pytest

from tests.wire.recordings import recordings
from tests.wire.test_over_http import WIRES

pytestmark = pytest.mark.wire

LEFT_OUT = {
    "anthropic-count-tokens": "it counts tokens and answers nothing, and the runtime never asks for it",
    "gemini-count-tokens": "it counts tokens and answers nothing, and the runtime never asks for it",
    "gemini-interactions": "a conversation that the provider keeps; ours is kept by us",
    "openai-responses-compact": "the provider compacts a conversation that it keeps; ours is kept by us",
    "bedrock-invoke": "InvokeModel speaks another wire for each maker; Converse is spoken instead",
    "cohere-chat": "there is no wire for it: Cohere is spoken to through its compatible endpoint",
}


def test_every_recording_is_read_by_a_suite_or_left_out_for_a_reason() -> None:
    found = {each.api for each in recordings()}
    assert found - WIRES.keys() == LEFT_OUT.keys() & found == LEFT_OUT.keys()
