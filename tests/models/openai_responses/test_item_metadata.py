"""What an item has beside its words is kept in the message, and sent back as the provider wants it."""

import pytest

from perdure import Thinking
from perdure._models.wires.openai_responses.item_metadata import (
    build_thinking_part,
    can_send_back,
    decode_item_metadata,
    encode_item_metadata,
    has_unknown_item,
    rebuild_item,
)

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


def part(item):
    return build_thinking_part(item, "Hm.", "openai", "gpt")


@pytest.mark.parametrize("item", [REASONING, {**REASONING, "encrypted_content": "gAAA"}, SEARCH])
def test_an_item_is_sent_back_as_it_came(item):
    assert rebuild_item(part(item)) == item


def test_reasoning_without_a_summary_is_sent_back_with_an_empty_one_and_without_its_status():
    """The provider refuses an item of reasoning that has none."""
    item = {"type": "reasoning", "id": "rs_1", "status": "completed", "content": [], "encrypted_content": "gAAA"}
    assert rebuild_item(part(item)) == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "gAAA",
    }


def test_an_item_of_another_type_gets_no_summary():
    assert has_unknown_item(part(SEARCH))
    assert "summary" not in rebuild_item(part(SEARCH))


@pytest.mark.parametrize(
    ("item", "stored", "sent"),
    [
        (REASONING, True, True),
        (REASONING, False, False),
        ({**REASONING, "encrypted_content": "gAAA"}, False, True),
        ({**REASONING, "content": [{"type": "reasoning_text", "text": "Hm."}]}, False, True),
        (SEARCH, False, True),
    ],
)
def test_what_the_provider_did_not_store_is_sent_back_only_with_its_content(item, stored, sent):
    assert can_send_back(part(item), stored=stored) is sent


def test_thinking_of_another_provider_is_not_sent_back():
    assert not can_send_back(Thinking("Hm.", "signature"), stored=True)


def test_metadata_goes_into_a_signature_and_out_of_it_and_what_is_empty_or_no_text_is_left_out():
    item = {"type": "custom_tool_call", "id": "ct_1", "phase": "", "namespace": 7}
    signature = encode_item_metadata(item)
    assert decode_item_metadata(signature) == {"id": "ct_1", "type": "custom_tool_call"}
    assert encode_item_metadata({"type": "message"}) == ""


@pytest.mark.parametrize("signature", ["", "EqQBCg", "{", '{"id": 7}'])
def test_a_signature_of_another_provider_has_no_metadata(signature):
    assert decode_item_metadata(signature) == {}
