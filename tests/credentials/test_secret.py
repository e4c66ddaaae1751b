"""A value that shows itself to those alone who ask for it."""

import copy
import json
import pickle

import msgspec
import pytest

from perdure import ConfigError
from perdure._core.values.jsonable import to_text
from perdure._credentials.secret import check_secret_value
from perdure.permissions import Secret
from perdure.tools import to_jsonable

VALUE = "s3cr3t-value"


def test_a_secret_reveals_its_value_to_those_who_ask():
    assert Secret(VALUE).reveal() == VALUE


@pytest.mark.parametrize("shown", [repr, str, "{:>20}".format, "{!r}".format, to_text, to_jsonable])
def test_a_secret_is_not_shown_otherwise(shown):
    assert VALUE not in shown(Secret(VALUE))


@pytest.mark.parametrize("stored", [pickle.dumps, json.dumps, msgspec.json.encode])
def test_a_secret_is_not_stored(stored):
    with pytest.raises(TypeError):
        stored(Secret(VALUE))


def test_secrets_are_equal_when_their_values_are_and_to_nothing_else():
    assert Secret(VALUE) == Secret(VALUE)
    assert hash(Secret(VALUE)) == hash(Secret(VALUE))
    assert Secret(VALUE) != Secret("another")
    assert Secret(VALUE) != VALUE
    assert copy.deepcopy([Secret(VALUE)]) == [copy.copy(Secret(VALUE))]


def test_what_is_no_text_is_no_secret_and_is_not_shown():
    with pytest.raises(ConfigError, match="give text") as caught:
        Secret(81_516_234)  # type: ignore[arg-type]
    assert "81516234" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [("", "fewer than 4"), ("abc", "fewer than 4"), (" a \n", "fewer than 4"), ("ab\ud800cd", "surrogate"), (7, "int")],
)
def test_a_value_that_could_not_be_kept_out_is_refused_and_not_shown(value, problem):
    with pytest.raises(ConfigError, match=problem) as caught:
        check_secret_value("key", value)
    assert "'key'" in str(caught.value)
    assert repr(value) not in str(caught.value)
