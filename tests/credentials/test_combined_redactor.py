"""What several agents must not give away, in one memory."""

import gc

from perdure import Agent
from perdure._credentials.redacted_model import CombinedRedactor
from perdure.events import TextDelta
from perdure.permissions import Redactor
from perdure.testing import ScriptedModel

KEY, PIN = "s3cr3t-value", "0th3r-v4lue"


def knowing(**values: str) -> Redactor:
    redactor = Redactor()
    for name, value in values.items():
        redactor.learn_value(name, value)
    return redactor


def test_a_family_knows_what_its_members_knew_before():
    family = CombinedRedactor()
    family.add(knowing(key=KEY))
    assert family.text(f"{KEY} {PIN}") == f"{{{{key}}}} {PIN}"
    family.add(knowing(pin=PIN))
    assert family.event(TextDelta(f"{KEY} {PIN}")).text == "{{key}} {{pin}}"


def test_a_family_hears_at_once_of_what_a_member_learns():
    family, first, second = CombinedRedactor(), Redactor(), Redactor()
    family.add(first)
    assert family.fixed_redactor is None
    family.add(second)
    assert family.fixed_redactor is None
    first.learn_value("key", KEY)
    assert family.text(f"{KEY} {PIN}") == f"{{{{key}}}} {PIN}"
    second.learn_value("pin", PIN)
    assert family.text(f"{KEY} {PIN}") == "{{key}} {{pin}}"
    assert (first.text(PIN), second.text(KEY)) == (PIN, KEY)  # each alone knows what is its own


def test_families_that_share_a_member_do_not_tell_each_other():
    shared, mine, other = Redactor(), CombinedRedactor(), CombinedRedactor()
    for family in (mine, other):
        family.add(shared)
    mine.add(knowing(key=KEY))
    shared.learn_value("pin", PIN)
    assert mine.text(f"{KEY} {PIN}") == "{{key}} {{pin}}"
    assert other.text(f"{KEY} {PIN}") == f"{KEY} {{{{pin}}}}"


def test_a_family_with_one_member_has_that_ones_scrubber():
    family, only = CombinedRedactor(), knowing(key=KEY)
    family.add(only)
    family.add(only)
    assert family.fixed_redactor is only.fixed_redactor
    assert (only in family, Redactor() in family, KEY in family) == (True, False, False)


def test_what_a_member_knew_stays_hidden_when_the_member_is_gone():
    family, passing = CombinedRedactor(), knowing(key=KEY)
    family.add(Redactor())
    family.add(passing)
    del passing
    gc.collect()
    assert family.text(KEY) == "{{key}}"


def test_a_family_that_is_gone_is_not_kept_by_its_members():
    member, family = knowing(key=KEY), CombinedRedactor()
    family.add(member)
    assert list(member._confidants) == [family]
    del family
    gc.collect()
    assert list(member._confidants) == []


async def test_the_model_of_a_family_is_told_nothing_and_keeps_nothing():
    family = CombinedRedactor()
    family.add(knowing(key=KEY))
    family.add(knowing(pin=PIN))
    model = ScriptedModel(f"You said {KEY} and {PIN}.", chunk=3)
    outcome = await Agent(family.model(model)).run(f"{KEY} {PIN}")
    assert model.requests[0].messages[0].text == "{{key}} {{pin}}"
    assert outcome.text == "You said {{key}} and {{pin}}."
