"""What a request has cost, in the fields of those who say so."""

import math

import pytest

from perdure._models.wires.reply_metadata import parse_cost, parse_reported_cost


@pytest.mark.parametrize(
    ("told", "cost"),
    [
        (0.0012, 0.0012),
        (0, 0.0),
        (3, 3.0),
        ("0.5", 0.5),
        ("free", None),
        ({"total_cost": 0.005, "usd": 9}, 0.005),
        ({"total_cost": None, "usd": "0.25"}, 0.25),
        ({"total_cost": 0, "usd": 9}, 0.0),
        ({"eur": 1}, None),
        ({}, None),
        ([1], None),
        (None, None),
        (True, None),
        (-1, None),
        (math.nan, None),
        ("inf", None),
    ],
)
def test_a_cost_is_a_number_a_text_or_a_total(told, cost):
    assert parse_cost(told) == cost


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({}, None),
        ({"cost": 0.5}, 0.5),
        ({"cost_in_usd_ticks": 35_404_000}, 0.0035404),
        ({"cost_in_usd_ticks": 10**10, "cost": 5}, 1.0),
        ({"cost_in_usd_ticks": 0, "cost": 5}, 5.0),
        ({"cost_in_usd_ticks": 0}, None),
        ({"cost_in_usd_ticks": "7", "cost": 5}, 5.0),
        ({"cost": 0.5, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.25}}, 0.75),
        ({"cost": 0.5, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, 0.5),
        ({"cost": 0.5, "is_byok": True}, 0.5),
        ({"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.25}}, 0.5),
        ({"cost": 0.5, "is_byok": "yes", "cost_details": {"upstream_inference_cost": 0.25}}, 0.5),
        ({"is_byok": True, "cost_details": {"upstream_inference_cost": 0.25}}, None),
    ],
)
def test_a_usage_reports_what_the_request_has_cost_in_all(usage, cost):
    assert parse_reported_cost(usage) == cost
