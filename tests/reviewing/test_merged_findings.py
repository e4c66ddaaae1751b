"""The findings of several models: which are the same, and how many models report each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._work.judging.reviews.review import SEVERITIES
from perdure._work.judging.reviews.reviewer import NEAR_LINES, is_same_finding, merge_findings
from perdure.evals import Finding


def finding(line=10, file="a.py", severity="minor", title="a lock is never released"):
    return Finding(severity=severity, file=file, title=title, problem="p", fix="f", line=line)


def test_findings_of_two_models_about_near_lines_are_one_with_the_worst_severity():
    (merged,) = merge_findings({"a": [finding(10)], "b": [finding(12, severity="critical", title="leak")]})
    assert merged.models == ("a", "b")
    assert merged.agreement == 1.0
    assert merged.finding.severity == "critical"


def test_findings_of_one_model_are_never_merged():
    assert len(merge_findings({"a": [finding(10), finding(11)]})) == 2


def test_a_finding_joins_the_nearest_one_of_another_model():
    merged = merge_findings({"a": [finding(10), finding(13)], "b": [finding(13)]})
    assert [(each.finding.line, each.models) for each in merged] == [(10, ("a",)), (13, ("a", "b"))]


@pytest.mark.parametrize(("apart", "same"), [(NEAR_LINES, True), (NEAR_LINES + 1, False)])
def test_lines_are_near_up_to_a_distance(apart, same):
    assert is_same_finding(finding(10), finding(10 + apart)) is same


def test_findings_about_whole_files_are_compared_by_their_titles():
    assert is_same_finding(finding(None), finding(None, title="the lock is not released"))
    assert not is_same_finding(finding(None), finding(None, title="no tests for parsing"))
    assert not is_same_finding(finding(None, title=""), finding(None, title=""))
    assert not is_same_finding(finding(), finding(file="b.py"))


FINDINGS = st.lists(
    st.builds(
        finding,
        line=st.none() | st.integers(1, 30),
        file=st.sampled_from(["a.py", "b.py"]),
        severity=st.sampled_from(SEVERITIES),
        title=st.sampled_from(["a lock leaks", "no tests", "wrong sum"]),
    ),
    max_size=5,
)


@given(st.dictionaries(st.sampled_from("abc"), FINDINGS, max_size=3))
def test_every_finding_is_in_one_group_and_no_model_is_counted_twice(reviews):
    merged = merge_findings(reviews)
    assert sum(len(each.models) for each in merged) == sum(map(len, reviews.values()))
    assert all(len(set(each.models)) == len(each.models) for each in merged)
    assert all(0 < each.agreement <= 1 for each in merged)
