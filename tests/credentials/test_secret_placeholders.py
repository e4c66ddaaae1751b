"""Placeholders, wherever they stand in the arguments of a call."""

import dataclasses
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import NamedTuple

import msgspec
import pytest
from pydantic import BaseModel, HttpUrl, SecretStr

from perdure._credentials.secret import build_placeholder, find_placeholder_names, substitute_placeholders

VALUES = {"key": "s3cr3t", "a.b-c_1": "other"}


class Header(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


@dataclasses.dataclass(frozen=True)
class Login:
    user: str
    password: str
    header: Header
    derived: str = dataclasses.field(init=False, default="")

    def __post_init__(self):
        object.__setattr__(self, "derived", f"{self.user}:{self.password}")


class Account(BaseModel):
    user: str
    password: str


class Request(BaseModel):
    url: HttpUrl
    password: SecretStr
    account: Account
    tags: list[str] = []


class Pair(NamedTuple):
    left: str
    right: str


class Unknown:
    pass


@pytest.mark.parametrize(
    ("value", "names", "result"),
    [
        ("Bearer {{key}}", ["key"], "Bearer s3cr3t"),
        ("{{ key }}{{  a.b-c_1}}", ["key", "a.b-c_1"], "s3cr3tother"),
        ("{key} {{}} {{k y}} {{{{", [], "{key} {{}} {{k y}} {{{{"),
        ("{{{key}}}", ["key"], "{s3cr3t}"),
        ({"deep": [{"er": ("{{key}}",)}]}, ["key"], {"deep": [{"er": ("s3cr3t",)}]}),
        ({"{{key}}": "key of a dict"}, [], {"{{key}}": "key of a dict"}),
        ({"{{key}}", "x"}, ["key"], {"s3cr3t", "x"}),
        (Header("X", "{{key}}"), ["key"], Header("X", "s3cr3t")),
        (PurePosixPath("/srv/{{key}}/x"), ["key"], PurePosixPath("/srv/s3cr3t/x")),
        (Pair("{{key}}", "x"), ["key"], Pair("s3cr3t", "x")),
        (7, [], 7),
    ],
)
def test_values_take_the_place_of_placeholders(value, names, result):
    assert find_placeholder_names(value) == names
    assert substitute_placeholders(value, VALUES) == result
    assert type(substitute_placeholders(value, VALUES)) is type(value)


def test_an_object_is_made_anew_as_its_class_makes_one():
    login = substitute_placeholders(Login("anna", "{{key}}", Header("X", "{{a.b-c_1}}")), VALUES)
    assert login == Login("anna", "s3cr3t", Header("X", "other"))
    assert login.derived == "anna:s3cr3t"


def test_a_model_of_pydantic_keeps_the_types_of_its_fields():
    account = {"user": "anna", "password": "{{key}}"}
    given = Request.model_validate({"url": "https://host/?k={{key}}", "password": "{{key}}", "account": account})
    assert find_placeholder_names(given) == ["key"]
    made = substitute_placeholders(given, VALUES)
    assert isinstance(made, Request)
    assert isinstance(made.url, HttpUrl)
    assert str(made.url) == "https://host/?k=s3cr3t"
    assert made.password.get_secret_value() == "s3cr3t"
    assert made.account.password == "s3cr3t"


def test_what_holds_no_placeholder_is_handed_on_as_it_is():
    given = [{"a": ["b"]}, Header("X"), Login("a", "b", Header("c")), Unknown(), PurePosixPath("x"), Pair("a", "b")]
    assert substitute_placeholders(given, VALUES) is given


def test_a_value_is_not_looked_into_for_more_placeholders():
    assert substitute_placeholders("{{a}}", {"a": "{{b}}", "b": "never"}) == "{{b}}"


class Attrs:
    """An object with the fields that attrs notes in its classes."""

    __attrs_attrs__ = (SimpleNamespace(name="user"), SimpleNamespace(name="password"))

    def __init__(self, user: str, password: str) -> None:
        self.user, self.password = user, password


def test_an_object_of_attrs_is_copied_with_its_values_and_the_given_one_stays():
    given = Attrs("anna", "{{key}}")
    assert find_placeholder_names(given) == ["key"]
    made = substitute_placeholders(given, VALUES)
    assert (type(made), made.user, made.password) == (Attrs, "anna", "s3cr3t")
    assert given.password == "{{key}}"
    assert substitute_placeholders(made, VALUES) is made


def test_a_placeholder_without_a_value_stays_as_it_is_written() -> None:
    assert substitute_placeholders("{{ unknown }} {{key}}", VALUES) == "{{ unknown }} s3cr3t"


def test_the_placeholder_of_a_name_is_found_as_that_name() -> None:
    assert build_placeholder("a.b-c_1") == "{{a.b-c_1}}"
    assert find_placeholder_names(build_placeholder("a.b-c_1")) == ["a.b-c_1"]
