"""One memory of all values that were handed out."""

import gc

import pytest

from perdure import ConfigError, ToolError
from perdure._credentials.redactor import MAX_VALUES
from perdure.events import ErrorRaised, QuestionAsked, TextDelta, ToolStarted
from perdure.permissions import MemoryVault, Redactor, Secret

KEY = "s3cr3t-value"


class Bare:
    """A vault that does not say what it knows."""

    def __init__(self, value):
        self.value = value

    async def resolve(self, name):
        return self.value


def test_a_redactor_that_knows_nothing_hands_everything_on():
    redactor, event, error = Redactor(), TextDelta(KEY), ValueError(KEY)
    assert redactor.fixed_redactor is None
    assert redactor.event(event) is event
    assert redactor.error(error) is error
    assert (redactor.text(KEY), redactor.value([KEY])) == (KEY, [KEY])


async def test_what_was_resolved_once_is_taken_out_of_everything():
    redactor = Redactor()
    assert await redactor.resolve_values(MemoryVault({"key": KEY, "other": "never-asked-for"}), ["key"]) == {"key": KEY}
    assert redactor.text(f"{KEY} never-asked-for") == "{{key}} never-asked-for"
    assert redactor.value({"a": KEY}) == {"a": "{{key}}"}
    assert str(redactor.error(ValueError(KEY))) == "{{key}}"
    assert redactor.event(ErrorRaised("ValueError", f"bad {KEY}", "model")).message == "bad {{key}}"
    asked = redactor.event(QuestionAsked("ask", "slot", KEY, ({"call_id": "c", "target": KEY},), input={"x": KEY}))
    assert (asked.text, asked.calls[0]["target"], asked.input) == ("{{key}}", "{{key}}", {"x": "{{key}}"})
    assert KEY not in repr(redactor)


async def test_names_and_hashes_of_an_event_are_left():
    redactor = Redactor()
    redactor.learn_value("key", "read")
    started = ToolStarted("read", "read", "read", "read", "read", run_id="read")
    assert redactor.event(started) is started


async def test_an_unknown_name_is_told_with_those_that_are_known():
    with pytest.raises(ToolError, match="unknown credential 'none', known names are 'key', 'other'"):
        await Redactor().resolve_values(MemoryVault({"key": KEY, "other": KEY}), ["none"])
    with pytest.raises(ToolError, match="unknown credential 'none', no names are known"):
        await Redactor().resolve_values(Bare(None), ["none"])


@pytest.mark.parametrize("value", ["", "abc", 7])
async def test_a_value_that_could_not_be_hidden_is_refused(value):
    redactor = Redactor()
    with pytest.raises(ConfigError, match="'key'"):
        await redactor.resolve_values(Bare(value), ["key"])
    assert redactor.fixed_redactor is None


async def test_a_credential_that_was_renewed_is_hidden_in_both_forms():
    redactor = Redactor()
    for value in ("first-value", Secret("second-value")):
        await redactor.resolve_values(Bare(value), ["key"])
    assert redactor.text("first-value second-value") == "{{key}} {{key}}"


def test_a_credential_that_is_renewed_all_the_time_does_not_fill_the_memory():
    redactor = Redactor()
    for number in range(MAX_VALUES + 1):
        redactor.learn_value("key", f"value-number-{number:03}")
    assert redactor.text("value-number-000 value-number-001") == "value-number-000 {{key}}"


async def test_values_that_were_handed_out_before_are_known_again():
    redactor = Redactor()
    await redactor.recall_values(MemoryVault({"key": KEY, "other": "never-asked-for"}), ["key", "gone"])
    assert redactor.text(f"{KEY} never-asked-for") == "{{key}} never-asked-for"


@pytest.mark.parametrize("value", [None, "abc", 7])
async def test_what_cannot_be_hidden_is_not_recalled(value):
    redactor = Redactor()
    await redactor.recall_values(Bare(value), ["key"])
    assert redactor.fixed_redactor is None


async def test_a_vault_that_fails_is_told_of_without_its_words(caplog):
    class Broken:
        def resolve(self, name):
            raise OSError(f"cannot send {KEY}")

    redactor = Redactor()
    await redactor.recall_values(Broken(), ["key"])
    assert redactor.fixed_redactor is None
    assert caplog.messages == ["credential 'key' cannot be looked up: OSError"]
    assert KEY not in caplog.text


async def test_a_text_in_pieces_is_cleared_of_what_is_learned_meanwhile():
    redactor = Redactor()
    stream = redactor.stream()
    assert (stream.feed("sent s3cr"), stream.end()) == ("sent s3cr", "")
    redactor.learn_value("key", KEY)
    assert [stream.feed(piece) for piece in ("sent s3cr", "3t-val", "ue. ", "s3")] == ["sent ", "", "{{key}}. ", ""]
    assert stream.end() == "s3"


async def test_a_redactor_shares_what_it_knows_and_what_it_learns_as_long_as_the_other_exists() -> None:
    first, second = Redactor(), Redactor()
    first.learn_value("key", "first-value")
    first.learn_value("key", "second-value")
    first.share_with(second)
    assert second.text("first-value second-value") == "{{key}} {{key}}"
    await first.resolve_values(MemoryVault({"other": "third-value"}), ["other"])
    assert second.text("third-value") == "{{other}}"
    second.learn_value("own", "fourth-value")
    assert first.text("fourth-value") == "fourth-value"
    del second
    gc.collect()
    first.learn_value("key", "fifth-value")
    assert first.text("fifth-value") == "{{key}}"


def test_a_stream_that_knows_a_value_learns_more_of_them_meanwhile() -> None:
    redactor = Redactor()
    redactor.learn_value("key", KEY)
    stream = redactor.stream()
    assert stream.feed(f"{KEY}. ") == "{{key}}. "
    redactor.learn_value("other", "another-value")
    assert [stream.feed(piece) for piece in ("an another", "-value. ")] == ["an ", "{{other}}. "]
    assert stream.end() == ""
