"""Replies beside the one that counts."""

from perdure._models.wires.reply_metadata import CandidateCollector
from perdure.events import TextDelta, ThinkingDelta, ToolCallDelta


def test_candidates_are_put_together_in_the_order_of_their_indexes():
    found = CandidateCollector()
    found.add(2, [TextDelta("la")])
    found.add(1, [ThinkingDelta("hm"), TextDelta("fir")], None)
    found.add(2, [TextDelta("st")], "length")
    found.add(1, [TextDelta("st")])
    found.add(3, [], 7)
    assert found.build() == [
        {"text": "first"},
        {"text": "last", "finish_reason": "length"},
        {"text": "", "finish_reason": "7"},
    ]
    assert CandidateCollector().build() == []


def test_a_candidate_tells_its_calls():
    found = CandidateCollector()
    found.add(1, [TextDelta("I look."), ToolCallDelta("c1", "look", '{"a":'), ToolCallDelta(arguments="1}")], "stop")
    assert found.build() == [
        {
            "text": "I look.",
            "tool_calls": [{"name": "look", "arguments": '{"a":1}'}],
            "finish_reason": "stop",
        }
    ]
