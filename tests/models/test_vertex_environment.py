"""Where the project and the location of Vertex AI are found."""

import json

import pytest

from perdure._models.wires.google_environment import find_location, find_project, get_adc_path

PROJECTS = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "VERTEXAI_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID")
LOCATIONS = ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "VERTEXAI_LOCATION", "CLOUD_ML_REGION")


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    for name in (*PROJECTS, *LOCATIONS, "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("names", "find"), [(PROJECTS, find_project), (LOCATIONS, find_location)])
def test_the_first_variable_that_is_set_counts(names, find, monkeypatch):
    nothing = find()
    assert nothing == ("" if find is find_project else "global")
    for name in reversed(names):
        monkeypatch.setenv(name, f" {name} \n")
        assert find() == name
    monkeypatch.setenv(names[0], "  ")
    assert find() == names[1]


def test_the_file_of_default_credentials_is_named_or_in_the_folder_of_gcloud(home, monkeypatch):
    assert get_adc_path() == str(home / ".config" / "gcloud" / "application_default_credentials.json")
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/c")
    assert get_adc_path() == "/c/application_default_credentials.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", " ")
    assert get_adc_path() == "/c/application_default_credentials.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", " /d.json ")
    assert get_adc_path() == "/d.json"


@pytest.mark.parametrize(
    ("told", "project"),
    [
        ({"project_id": "a", "quota_project_id": "b"}, "a"),
        ({"quota_project_id": "b"}, "b"),
        ({"project_id": 3}, ""),
        ([], ""),
        ("{", ""),
    ],
)
def test_the_project_may_be_in_the_default_credentials(told, project, home, monkeypatch):
    file = home / "credentials.json"
    file.write_text(told if told == "{" else json.dumps(told))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    assert find_project() == project
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "of the environment")
    assert find_project() == "of the environment"
