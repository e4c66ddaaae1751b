"""Rows outline the runs that have ended: a session is the same whether its outlines are used or its events are read."""

import base64
import zlib
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from perdure import Agent, Limits, Price, ToolOutput, tool
from perdure.core.ended_run_outlines import EndedRuns
from perdure.core.error import BadRequest, PerdureError, ProviderDown, StoreError
from perdure.core.event import (
    Entry,
    Event,
    MessageAdded,
    ModelRequested,
    RunEnded,
    RunStarted,
    SessionConfigured,
    Unknown,
)
from perdure.core.fold import fold_entries, fold_events
from perdure.core.message import Usage, assistant, user
from perdure.core.store import read_events_to_fold
from perdure.stores.listened_store import listened
from perdure.stores.sqlite import log_row_merging, run_message_positions
from perdure.stores.sqlite.pack_rows import (
    PackRow,
    decode_condensed_events,
    decode_entry_metadata,
    decode_row_entries,
    decode_row_events,
    encode_row,
    merge_rows,
    slice_row,
)
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.testing.scripted_reply import Reply
from tests.random_log import RandomLog, describe_state
from tests.stores.material import another_connection


def no_text(digest: bytes) -> bytes:
    raise AssertionError(digest)


def number(events: list[Event], first: int = 1) -> list[Entry]:
    return [Entry(seq, float(seq), event, f"w-{seq}") for seq, event in enumerate(events, first)]


def encoded(entries: Sequence[Entry]) -> PackRow:
    return encode_row(entries, [entry.id for entry in entries])[0]


def merged(events: list[Event], first: int = 1, size: int = 7) -> PackRow:
    """One row, as it is merged from those of several appends."""
    entries = number(events, first)
    return merge_rows([encoded(entries[place : place + size]) for place in range(0, len(entries), size)])


def to_fold(row: PackRow, first: int = 0, last: int = 1_000_000) -> list[Event | EndedRuns]:
    return list(decode_condensed_events(row, first, last, no_text, "s"))


def is_outlined(row: PackRow) -> bool:
    return any(isinstance(each, EndedRuns) for each in to_fold(row))


def usual_runs(count: int, *, text: str = "Hi", input_id: str = "") -> list[Event]:
    events: list[Event] = []
    for run_id in [f"run-{place}" for place in range(count)]:
        events += [
            RunStarted("agent", input_id=input_id, run_id=run_id),
            MessageAdded(user(text), run_id=run_id),
            ModelRequested(1, run_id=run_id),
            MessageAdded(assistant("Hello.", usage=Usage(3, 2)), run_id=run_id),
            RunEnded("done", usage=Usage(3, 2), cost_usd=0.1, turns=1, run_id=run_id),
        ]
    return events


@pytest.mark.parametrize("seed", range(30))
def test_a_random_log_in_rows_gives_the_same_state(seed):
    log = RandomLog(f"rows {seed}")
    events = log.make(20, strangeness=(seed % 6) / 8)
    if seed % 5 == 4:
        events = log.damage(events)
    rows: list[PackRow] = []
    while sum(row.last + 1 - row.first for row in rows) < len(events):
        first = rows[-1].last if rows else 0
        rows.append(merged(events[first : first + log.chance.randrange(2, 90)], first + 1))
    found = [each for row in rows for each in to_fold(row)]
    by_events = [each for row in rows for each in decode_row_events(row, 0, 1_000_000, no_text, "s")]
    assert describe_state(fold_events(found)) == describe_state(fold_events(by_events))
    assert by_events == events


def test_calls_with_many_results_are_one_message():
    events = RandomLog("many").make(30, strangeness=0.0)
    row = merged(events)
    assert is_outlined(row)
    state = fold_events(to_fold(row))
    assert any(len(message.tool_results) == 3 for message in state.messages)
    assert describe_state(state) == describe_state(fold_events(events))


def test_inputs_are_known_with_their_outcomes():
    row = merged([*usual_runs(2, input_id="one"), *usual_runs(2, input_id="two"), *usual_runs(1)])
    assert is_outlined(row)
    runs = fold_events(to_fold(row)).runs_by_input_id
    assert [(name, run.first_message_index, run.end_message_index) for name, run in runs.items()] == [
        ("one", 2, 4),
        ("two", 6, 8),
    ]
    assert all(run.run_ended_event is not None for run in runs.values())


def test_a_row_of_which_only_a_part_is_wanted_is_read_by_its_events():
    events = usual_runs(6)
    row = merged(events, first=11)
    assert to_fold(row, 12) == events[1:]
    assert to_fold(row, 0, 30) == events[:20]


def test_rows_without_usual_runs_have_the_heads_that_they_always_had():
    entries = number(usual_runs(1))
    row = merge_rows([encoded(entries[:2]), encoded(entries[2:])])
    assert len(msgspec.msgpack.decode(row.heads)) == 4
    assert to_fold(row) == usual_runs(1)


def test_ids_and_times_are_read_beside_outlines():
    row = merged(usual_runs(6))
    assert len(msgspec.msgpack.decode(row.heads)) == 5
    assert decode_entry_metadata(row).ids == [f"w-{seq}" for seq in range(1, 31)]
    assert decode_row_entries(row, 0, 99, no_text, "s") == number(usual_runs(6))


def test_a_part_of_a_row_has_no_outlines():
    part, _ = slice_row(merged(usual_runs(6)), 6, 25, no_text)
    assert not is_outlined(part)
    assert to_fold(part) == usual_runs(6)[5:25]


def test_outlines_of_another_version_are_ignored(monkeypatch):
    row = merged(usual_runs(6))
    assert is_outlined(row)
    monkeypatch.setattr(run_message_positions, "OUTLINE_VERSION", 1_000)
    assert to_fold(row) == usual_runs(6)


def test_events_of_another_version_are_not_outlined():
    row = merged(usual_runs(6))._replace(version=0)
    with pytest.raises(PerdureError, match="upgrade perdure"):
        to_fold(row)


def test_a_kind_of_event_that_is_not_known_is_kept_beside_outlines():
    strange = Unknown("from_later", {"kind": "from_later", "a": 1})
    for events in ([*usual_runs(4), strange], [strange, *usual_runs(4)]):
        row = merged(events)
        assert not is_outlined(row)
        assert to_fold(row) == events


def test_a_number_that_only_json_can_have_is_read_by_events():
    huge = MessageAdded(user("Hi", metadata={"number": 10**30}))
    row = merged([*usual_runs(4), huge])
    assert row.body[:1] == b"["
    assert to_fold(row) == decode_row_events(row, 0, 99, no_text, "s")


def outcome_of(row: PackRow, decode) -> object:
    try:
        return describe_state(fold_events(decode(row, 0, 1_000_000, no_text, "s")))
    except (PerdureError, UnicodeDecodeError) as error:
        return type(error)


@pytest.mark.parametrize("part", ["heads", "body"])
def test_a_changed_bit_changes_no_more_than_it_does_without_outlines(part):
    row = merged(RandomLog("flips").make(8, strangeness=0.0))
    assert is_outlined(row)
    whole, chance = getattr(row, part), Random(part)
    for place in chance.sample(range(len(whole)), 200):
        changed = bytearray(whole)
        changed[place] ^= 1 << chance.randrange(8)
        flipped = row._replace(heads=bytes(changed)) if part == "heads" else row._replace(body=bytes(changed))
        assert outcome_of(flipped, decode_condensed_events) == outcome_of(flipped, decode_row_events), place


@pytest.mark.parametrize("runs", [2, 6])
def test_a_row_that_is_not_as_long_as_it_says_is_damaged(runs):
    last = SessionConfigured({"role": "x"})
    row = merged([*usual_runs(runs), last])
    assert is_outlined(row)
    assert to_fold(row)[-1] == last
    for number_of_last in (1, row.last - 1, row.last + 1):  # without the last one, the rest is all in the outline
        with pytest.raises(StoreError, match="is damaged"):
            to_fold(row._replace(last=number_of_last))


def test_rows_with_a_sum_that_no_number_can_have_are_merged_without_outlines():
    events = [
        MessageAdded(assistant("Hello.", usage=Usage(2**63 + 1)), run_id=each.run_id) if place % 5 == 3 else each
        for place, each in enumerate(usual_runs(4))
    ]
    row = merged(events)
    assert not is_outlined(row)
    assert fold_events(to_fold(row)).total_usage.input_tokens == 4 * (2**63 + 1)


def test_outlines_that_do_not_fit_their_row_are_ignored():
    row, other = merged(usual_runs(6)), merged(usual_runs(6, text="Ho"))
    assert to_fold(row._replace(heads=other.heads)) == usual_runs(6)


def test_outlines_that_say_nonsense_are_ignored():
    body = merged(usual_runs(6)).body
    for nonsense in (b"\x90", msgspec.msgpack.encode([["nonsense"]])):
        checksum = zlib.crc32(body, zlib.crc32(nonsense))
        signed = msgspec.msgpack.encode([1, checksum, msgspec.Raw(nonsense)])
        found = run_message_positions.decode_outlined_events(signed, body, 30)
        assert found is None or found == usual_runs(6)


STORED_HEADS = (
    "eNpFk1toHFUAhneSKhVFAgYMohKKbVVMnXM/s1Y36b1p0jbJ5oKBJgtZs0G7a7ob+hSQFl9EvCWtglXc34dib1pfE8FLS4WdEQUFkSj4IFIV"
    "7INgH7xNtv3jnJnhO9/55sy8zImVTKGRu5ZpHo3uDGE9oY3QTugg3EvoJGwgPEDYRHiQ8DDhEcIWQkgQBElQBE0wBEtwBE+ICFnCY4SthMcJ"
    "TxByhO41eO4m9ND00Gyj2UaznWY7zQ6aHTQ7aXbS7KLZRbObZjfNHpo9NHtp9tL00vTS7KPZR9NH00fTT9NPs59mP80BmgM0B2kOdhPWlj6+"
    "CQNsBtgMsBlgM8hmkM0gm0E2Q2yG2AyxGWKTZ5Nnk2eTZzPMZpjNMJthNiNsRtiMsBlhM8pmlM0om1E2Y2zGbjQ42pX+bnVRl3VV13VTt3VX"
    "9/UIIoQQEBJCQWgIA2EhHISHiCBDSAEpIRWkhjSQFtJBesgIKoQSUBJKQWkoA2WhHJSHiqBDaAEtoRW0hjbQFtpBe+gIJoQRMBJGwWgYA2Nh"
    "HIyHiWBDWAErYRWshjWwFtbBetgILoQTcBJOwWk4A2fhHJyHi+BDeAEv4RW8hjfwFt7Be/gIUYhIIJKIFCKNyCCyiNyJs0fmyhPVWuFIrTh1"
    "/nCxWi1MFycKU1PFqXO1SuWZtaXm5KmZ8ky1VJx6b/WhYjmNLgf9C8EX61+5/uWrJxcyhVsWW7ckm99PHppdyfT1Zg9NzsfH4tPT8VvZeGmy"
    "eV+dPzkff5sEy+Nf/fNXKQlGt8bL2UPxm0nwYSk140mwKb6WtORLPemIT6XjTCk+29zreHxmfH5VjKci/u4GLcXH0+5CNj41mW40P7mSaW8N"
    "1gVBS2tL0BqsnkFLep1MOhaTjl+Tjc8nG1eSzWPpZy4uHjs3U352rjZRqzxdLFeTlt/OV+Zq/wvX9kYj93n7bYN3X/mjkfvm+tF3L36/3Mh9"
    "/fYn98ze+UEj9+NHn77+09K/jdzVH25/8darXY3cz1curSu9fLiR+/2ld0am//w7Xbr4aOWX2Rc+a3vtvszCwunm+7r8HXcRzf2dRNu54T9I"
    "WrrA"
)
STORED_BODY = (
    "eNrFWk+I3FQY3z+1rQp6EQRPQ6+6declk2S8rOBFDx6sIAhCCJO3O2EnyWzeC91FhLWd3YMsim3VS5VKZ3Z23F1rvSioUP9AC3vVi9SCi1Lq"
    "ofUg6EX0TbLUeU4mee8lb7owyUx23vu+732/3+/78ibXJ6zT7UXHs7eD0DMRtgIM7Y61AD0cHzf71x27Q04z5firuy5EiPzTtGwb2t2DT6fa"
    "gd+A7RDBoNMk06C3T7XxShO2MVzG0eGzZ2Gj4T9R+uXzd2++s1HaXz2/vL/6fukBykQrMnHJ9W3YMAO4FEJEPGrjMPAmO9HV+MjsVyvyq2ch"
    "5JDwSFjJzm09V8J1x1s8PmikE0aR7TheM8Qm9hehh+Z2/RD/93GScmRttPdTgxP3moFTg2aI7HN7c79PRH97T8fniStX8gbXioLrYd9vmDWr"
    "0ej2D2TCzeistj3LhRetGu5ZwULokiyjrVePeceeKpVfywr/eTr8o5Sr65GrO5HdAyyNMr0J5+dhDe9Y2HR9hE3fq8FLjg3dpo+hV1sxF+HK"
    "R+Q1E49LWOXdyMy84zmonmIngChs4PVoRbajIfGVUQO6Nd8jHuBhhNi+B0v7589uktBwiDowCPygi0LXtYKVDqr7AU5YjV7/EvRI0g7Gtfvz"
    "xEu7ulXrx05gsDd37ZH7Tzx69Y9OHytoKgEBLAwF8hkKRBgK1lMGdS2MSd6xKEPAOOn/Ao3/qYQoWTP+w18nL17+6cs445MJEbFkXJGfcUUk"
    "44rMjCuFa6KRRxNPpGBCydREQ1ATDcpMtiYa/9fEtQxNNDg0cbQMKhJqokD+z45k/ChgxOcySENGxlglD6oMGlXTrKga8psFVtt3YVUGnIYU"
    "UUMKM4CHLWVV9aERhZV1FkcBO9WGRsji2rQo19LmTBRyZqaezlGbE0CaVndfp6h1ZKAKf//B148tPfRJXIWnE+reqCq8Fc9IUhi9maH0WJVf"
    "llWRsqzy5+NMhshpOQRSZxVIKoYbE0ejKD5twsB1iLe+Z9qw5thDRNTbfcsREcmLfC96S3K5APGHyx/ftWnWLVS/0CFj/JPfUray9U8X1T+d"
    "MsQgKzq3rOiFyAqLbxq3NmvFa7MqodcQYMw5wV4DzIpTCZRzjAVyaUjikk7DgbXjoyGY5TRUFjVUFlw9MIbVE+0WAeAUisE8sQnFwIiihSLV"
    "0TK3o+V74yjgdhRIcLTF2Hqy6nV2b6ny3wWeEVXmXHumesqeKQM3VVFuqrxIUrmRJGHfVM3Tzf/81Tfv/frFPwndvMq+p1aR37xXRJr3yjg3"
    "Oo/ToD1EOSKhz6oUuKd3AM5cm3qTdPyHKV+zSWuIktZIWOhU0hq8dwWgmI29ioTNhsr4JF0BedDxOI2O+/jQoYi2WwrgRIfCvRWlFLMVVcmj"
    "4rduPLhx+NZMgopX2FVck6/i2hqjinNQQJP5w4k2Rn5pefiVVn20bH5povzSEtKbyi+Nm19aIfzSWowlmBVbU/cAWxkFXJ3NA6FnaAgd4cys"
    "yn2jqkq4UdX4flK+efW7Q/W33ISHCDS+zezK4FhdvpLqIv2wvsYrlcxRFd1Nv5jy1JCep1TeefPCSwt//p3wEIHOl3FK+Qz5GTck1E5jnCmd"
    "TSlRRq7u5/KT/m9LbySk1GDvfqryM1iVkMHqODP4csotXjVPBm+/0vtx4+FrCRms/guZpSId"
)
"""Heads and body of a row with outlines, as it was stored by the first state of this version, compressed."""
AGENT_HEADS = (
    "eNp1lU9oHFUcx3c2sQQUE0raRmNAbQwhVDvv37w3aU3Spkmbtmmb/5t4CNFd7dJ0t2Q3RLCK4MWrJhXswbLfohLSnqp4ERFK9ZB9HnuQQEERPCoI"
    "KnhwNu53e1AXfu995vM+swMDy17bSS1vD/6S2v1sD6UILYQ2Qjuhg/AU4WnCs4RuQg+hl9BHOER4gRASBEESFEETDCEiWIIjxIR+whHCUcKLhAHC"
    "IGGoAW/X4RjNMZrjNMdphmmGaU7QnKAZoRmhGaUZpTlJc5LmFM0pmjGaMZrTNKdpztCcoTlLc5ZmnGac5hzNOZrzNOdpLtBcGCI0jr6uwwSbCTYT"
    "bCbYTLKZZDPJZpLNFJspNlNspthMs5lmM81mms0Mmxk2M2xm2MyymWUzy2aWzRybOTZzbObYZNhk2GTYZNjMs5lnM89mns0CmwU2C2wW2Lz0T4O1"
    "55NfdEVUZEVVdMVUooqtuEoMEUIICAmhIDSEgYggLISDiCFDSAEpIRWkhjSQEaSFdJAxVAgloCSUgtJQBiqCslAOKoYOoQW0hFbQGtpAR9AW2kHH"
    "MCGMgJEwCkbDGJgIxsI4mBhRiEggkogUIo3IIIoQWUQOUQwbwgpYCatgNayBjWAtrION4UI4ASfhFJyGM3ARnIVzcDHiELFALBErxBqxQRwhtogd"
    "4vimCMNkRDIyGZWMTsYkEyVjk3HXtlZWC4ul8tJKOZe9fTlXKi29lltcymZz2c3aSa6Q0K1ysbjciHYvXs0X8qWLuey99L714LufOrd+fu+D9dTy"
    "IxtNs374Qz/68k4qsxL6oO1NHzxZ26sfV//M+qDvqg8eb1wv9id0tV74oNOnxaW17Fq9a9xX/cwHA7wo+mAs4QfJ3K8/oHP37IYP7lS/TG59i6b+"
    "yOon1b9yD/f+3bNvfXC4BnPV32vbGzupvc1BU9Dc1BSkgz0J1T47qXafzvj0975lwbfs+I6jvuMr35X2Xdf9wS98t/LPfeN7RvzhGz58xve/7o88"
    "5odyfuiuHz6QvIaNjXdu5QtXVsuL5eKlXKFU/fR2cbX88Hpi88pK7pV8KV8sbOZK5fzlpeT9tn+0PfDbH5+/++PFX7cHm/8XGk0DUvxba8B/fE/r"
    "atv4TFd+e+CHB/c3qluD/47vtr9/MHV9HXmRSierTO9JVv1oa7Ka1r3JavftT1a3/8D6zbwIn+iqbaKru7apnt7apnv7/gZLgR4c"
)
AGENT_BODY = (
    "eNrVWl+M3EYZv2uoKoU/DbSlVVUqNxKC0Db1jD1jO0gEoQSVBxBClDe0Gs+Mb63btRfb28up6kObJgWJF6DwTrK7d9cktKqEBG9VeQzPSCehVgIk"
    "XkHigceO7cttEo+9Hsv2XaJoN7tZz/dnft/v931j/31t9NZs0w/YjWgaDOKERAlnc7LBgyR/3fWDyTQZ+OyaDxbpb3y2r+mAAM6Agy2iuzY2bYId"
    "opsEEBtbtssuZ0veGvM4FosMCGOc7Rx8enMWhSM+m8Y8mk+EufhXb86S7QmfJfxSkr3cepmPRuEL2r/+9Lt///aXtY3+IjP63jhkfDSI+M+mPBax"
    "zJJpFKzPs293Yxr5E/Hl7iQKX/UZjw6/WUwi7vmX9p8DkHADUhdwqkOmgxc9pFNdZy7XMXABQLsHccTr7wsD/piIqwdJuMmD+OW9SeRTPpjG7J3b"
    "5/+zlv25/e38fe3DD1vJ39Usf3skjn2xXWKb5ElcZEk8W4z0vlTM4iScZC/zabY9N/MNzyM6eSucJsuPD9eO4GoWwV76cx4I7xfC12Qaz1gY8DqG"
    "dmkYJ2kib3/rf///48//OfzvPN3IeL22B7VhDWVLAuJYyCWWberY1cUGINtAXcNaarRvWJ8owPqLDWCtnL8SWL+VJXEvCcPRgJLRaCd9EcYW2TuY"
    "BWTMZ6Mw3Nwj0cZ0LHY23nntdHD6nP56PejvZkuLbWsKf2mkOfxvZmsfoK/U8wX3PE6TWcQJe0/4O56ECQ/o9mCTb++fiV9aZeulfEFF325lvnl+"
    "4MfDKuciHk9HydVsG25k1+TflF6xQ8NA+J8UGSnmPNB0saIghOiN35P1nXg6HpNoex4Pwyh5n00jkvihqFcu1mDx7QOErbVRKw91USsPF2rl1BHW"
    "yv0Jn18QZNuHAlTArL4CPH6voZNLBTj/mbsV4CHFFJYpgGwZyEwP25hgSMVHG1gOtEHXrC812jfrP9IK6yvnrxHrw3LWB32xvjTSlawPG7G+1FbO"
    "+lDRtyrWh8qsD2uzPmiJ9ZUBdnllge58l4jSip5bhJG/4Qe74gOP/GCjjVLtRHROFkr1S0dYqkcmOhUo70l0pB7UHjtM6ZKORWzDsaDFOfIsk2Gk"
    "884FSGa0bwH6XDsCpJo/Oap/Uy1ARrkAGa9XX2pWTSzVl6LyS83eZE+W35WyZzSTPZmtXPaM9nwz2/bNbM831LZvSNG3qnbBKLQLV1a0C0aNduHP"
    "PyGjKb8YRWF0TgvCZCiUWEuGPOIHVD7n6f8pdg3NIjSVGyKz9zG4YWhIOTRUOzSzy9D6bra+UJClp45Olo6w2SqHWV/NlsyD2s2WlPhMih3oEu44"
    "0DQ9YgOMYefTvtRo383WqVaaLeX8NZr2cXnbA/tqe6SRrpRv3Ei+pbZy+caKvlUpAFaWb1xDAfZ/+uMh14SX2haJNUoCKuqBM21r6I+40HE/1iIS"
    "nNW+l2hhMNrW0nzEL2gkYBodkkBA847on9P8JF1Ac8V6fMJTrJ49YJi9w4XVFEWaqrflLLa0IdJD4jBYftH6/auKQlI5vTQNz0KmxaDHmUEQhRwx"
    "2jmfyYz2zWePFfjs6034TDV/jfjMKucz1BufySJdyWdWMz6T2cr5zFL0rYrPrAKfvb2Cz6zaHS0q7Wj3Eh6N/UAA7y+KVCSLsoSKdtI9nxwS0buH"
    "NjtgIplbtbss+X7ajocNZmPPQAxRCmwL6Z2zksxo36z05VYOaqWhlCBl4RF/qVjvfoewH+Vh5lPzdZewJRzuwLMKDjLbteFgS5f0HNcljmPrrm1Y"
    "wHQY4KRzOMiM9g2HJwtweKIJHGSh1ILDzR8eBHEh3ApyQIhRbStQQ0T59im1KqLP8ZhtOwRQy7Ed2zOI2zkKZEb7RsFTBRQ82QQFqvk7dk+NSSPo"
    "9akxqQc1ye26D3Tpmgy6JrBd13SobiCEDAZg57iWGe0b10+3c6Sgmr9GLbiddX7XJ2R72YFfe6235lsW48drn82i/GCSNnciGtFHMk59dn+fa89S"
    "+6nvC0LTdjP7p4DqBk9EDH84DGgwJPFwX4PEcx3B1Z5jAFN0czp0LIyBY3nIcCwHzsWi4dZHBxqx7y/ta4wHPmfn8rE9taoFnLNYu+sn6eCenc5r"
    "fjq5i6FeTPmhRuLNb2osTGd5LYm201GebBA/0MTf/BBgGuTNvAgwSPxke1/zPAIpAwwhj9qG4VIEsc4YhQy7VPecaySp7qhlaV09NyyxUPMYZHlB"
    "+SlIf1m8o/S5FcUZRJE3Ojlgf6bAG2eOkDcKD4dcyPLaiyCW47enI3apB/UFUfoEKkbQNriNbc4pQq5gHAKMrgVRarRvQXy2FUFUzl8jQXSOwXPU"
    "0khXnkk5jc6kpLbyMylH0bcqbXGU77I6vd9AVq2VTkRAa+U56q5rJX8H+gNYLEXXK6vlG3WrRT4FKZeLxL1V9VK85JgWzIkuCub0g1Qw4MEtGNB6"
    "wYA2CwaoFww4HgVTcmI5H/ljP7lzx3VMLg2ydlW268/eu+uP3tXqPjo99f1XvuLnre4JReSrHGNiw3EN4BgcY4gdG3jQRHbn3a3MaN/d7Vdbubeh"
    "nD85Af06J6Dd9MEBce1Glshrw/FKbrk/+bOLcaI+612+B5eP3IvLdZEWTv10zt87TFntXKye/9SN33VI+o9P/vbOX2+crzgklXpVfyaUPqhrUYiI"
    "5emehaEFPIxcqJtdV43UaN9V87VC1ZxsUDXK+btS77Bj9gOBKgX01/btSgWKle4+SVevj0bpo9kWxIg70KAeQQRRbFGMOr8hKTXaNxrPFND4+SZo"
    "VM1fzaO32cWgl3M3qf+93oiqyKBKM2Lphu25FAkAuDqBAOsWwp0DWWa0byA/38pRm3L+jhuQZf73C2SZB58CQC+d+w=="
)
"""Those of a row with what an agent did: runs that failed, were cancelled, steered, terminated or met a limit."""


@pytest.mark.parametrize("stored", [(STORED_HEADS, STORED_BODY), (AGENT_HEADS, AGENT_BODY)], ids=["random", "agent"])
def test_an_outline_that_was_stored_before_amounts_to_the_same_as_its_events(stored):
    heads, body = (zlib.decompress(base64.b64decode(each)) for each in stored)
    row = PackRow(1, len(decode_entry_metadata(PackRow(1, 1, 1, heads, body, None)).ats), 1, heads, body, None)
    message = "the fold, or the form of outlines, has changed: increase OUTLINE_VERSION, and store this row anew"
    assert is_outlined(row), message
    by_events = describe_state(fold_events(decode_row_events(row, 0, 1_000_000, no_text, "s")))
    assert describe_state(fold_events(to_fold(row))) == by_events, message


# -- in a file ---------------------------------------------------------------------------------------------------------


async def fill(store, session_id: str, events: list[Event], size: int = 5) -> None:
    lease = await store.acquire(session_id)
    entries = number(events)
    for place in range(0, len(entries), size):
        await store.append(lease, entries[place : place + size], sync=False)
    await store.release(lease)


@pytest.fixture
async def filled(store, monkeypatch):
    """A store with a session of a few large rows."""
    monkeypatch.setattr(log_row_merging, "MERGED_ROW_BYTES", 6_000)
    await fill(store, "s", usual_runs(60, text="Hello there."))
    return store


async def has_outlines(store, session_id: str) -> bool:
    found, _ = await store.events_to_fold(session_id)
    by_entries = fold_entries(await store.read(session_id))
    assert describe_state(fold_events(found)) == describe_state(by_entries)
    return any(isinstance(each, EndedRuns) for each in found)


async def test_a_session_that_was_given_back_is_read_by_its_outlines(filled):
    assert await has_outlines(filled, "s")
    events, head = await filled.events_to_fold("s")
    assert head == 300
    assert len(events) < 100
    assert await filled.events_to_fold("s", after=300) == ([], 300)
    assert await filled.events_to_fold("none") == ([], 0)
    after, _ = await filled.events_to_fold("s", after=17)
    assert fold_events(after).total_turns == fold_events((await filled.events("s", after=17))[0]).total_turns


async def test_a_fork_is_read_by_the_outlines_of_its_origin(filled):
    for at in (300, 137, 1):
        await filled.fork("s", f"fork-{at}", at=at)
    assert await has_outlines(filled, "fork-300")
    assert await has_outlines(filled, "fork-137")
    assert not await has_outlines(filled, "fork-1")


async def test_an_erased_text_is_in_no_outline(filled, path):
    lease = await filled.acquire("s")
    await filled.redact(lease, Entry(7, 7.0, MessageAdded(user("[erased]"), run_id="run-1"), "w-7"))
    await filled.release(lease)
    assert await has_outlines(filled, "s")  # of the other rows
    messages = fold_events((await filled.events_to_fold("s"))[0]).messages
    assert messages[2].text == "[erased]"
    with another_connection(path) as connection:
        rows = connection.execute("SELECT first, last, version, heads, body, holes FROM pack ORDER BY last").fetchall()
    split = [PackRow._make(row) for row in rows][:3]
    assert [(row.first, row.last) for row in split[:2]] == [(1, 6), (7, 7)]
    assert not any(is_outlined(row) for row in split)


class Veiled(SqliteStore):
    """Changes what is read, as a subclass did before there were outlines."""

    async def events(self, session_id, *, after=0):
        events, head = await super().events(session_id, after=after)
        return [MessageAdded(user("[veiled]")) if isinstance(each, MessageAdded) else each for each in events], head


async def test_a_subclass_that_changes_the_events_is_not_bypassed(filled, path):
    veiled = Veiled(path)
    try:
        events, head = await read_events_to_fold(veiled, "s")
    finally:
        await veiled.aclose()
    assert head == 300
    assert {each.text for each in fold_events(events).messages} == {"[veiled]"}
    assert any(isinstance(each, EndedRuns) for each in (await read_events_to_fold(filled, "s"))[0])
    wrapped = listened(filled, on_append=lambda *_: None)
    assert any(isinstance(each, EndedRuns) for each in (await read_events_to_fold(wrapped, "s"))[0])


# -- by an agent -------------------------------------------------------------------------------------------------------


@tool(effect="read")
async def look(n: int) -> str:
    """Look."""
    if n == 3:
        raise ValueError("nothing there")
    return f"seen {n} “世界”"


@tool
async def hide(n: int) -> ToolOutput:
    """Hide."""
    return ToolOutput("hidden", labels=("private",) if n == 3 else (), summary="short")


def write_reply(chance: Random) -> Reply | Exception:
    """What a model may reply: calls, a text, or an error."""
    if chance.random() < 0.05:
        return chance.choice([ProviderDown("down"), BadRequest("bad")])
    usage = chance.choice([None, Usage(5, 2, 1), Usage(7, precision="estimated")])
    names = [chance.choice(["look", "look", "hide", "no_such_tool"]) for _ in range(chance.choice([0, 0, 1, 3]))]
    asked = [call(name, n=chance.randrange(4)) for name in names]
    return Reply(text="I think." if chance.random() < 0.5 or not asked else "", calls=asked, usage=usage)


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_an_agent_has_done_is_the_same_by_outlines(seed, store, monkeypatch):
    monkeypatch.setattr(log_row_merging, "MERGED_ROW_BYTES", 4_000)
    chance = Random(seed)
    model = ScriptedModel(lambda _: write_reply(chance), price=Price(input_usd=1.0, output_usd=2.0), repeat_last=True)
    agent = Agent(
        model, tools=[look, hide], store=store, limits=Limits(max_turns=4), clock=FakeClock(auto=True), name="agent"
    )
    were_outlined = []
    for _ in range(5):
        for number_of_run in range(6):
            input_id = f"input-{chance.randrange(20)}" if number_of_run % 2 else ""
            await agent.session("s").run("Hello", input_id=input_id)
        were_outlined.append(await has_outlines(store, "s"))
    assert any(were_outlined)
    state = fold_events((await store.events_to_fold("s"))[0])
    ends = [run.run_ended_event for run in state.runs_by_input_id.values()]
    assert {"done", "limit"} <= {ended.status for ended in ends if ended is not None}
