"""`[[schedule]]` in perdure.toml: schedules, and mistakes with their lines."""

import pytest

from perdure import BadConfig, load_config
from perdure.background import Cron, Every, Schedule

GOOD = """
model = "demo"

[[schedule]]
name = "news"
every = "1h"
prompt = "Sum up the news."

[[schedule]]
name = "report"
cron = "0 9 * * mon-fri"
skill = "report"
session = "reports"
retries = 2
late_seconds = 600
timeout_seconds = 60.5

[[schedule]]
name = "mail"
prompt = "Answer this mail."
"""


def load(tmp_path, text, **options):
    path = tmp_path / "perdure.toml"
    path.write_text(text, "utf-8")
    return load_config(path, **options)


def test_the_tables_are_schedules(tmp_path):
    found = load(tmp_path, GOOD, trusted=True).build_schedules()
    assert found == [
        Schedule(name="news", when=Every(3600), prompt="Sum up the news."),
        Schedule(
            name="report",
            when=Cron("0 9 * * mon-fri"),
            skill="report",
            session="reports",
            retries=2,
            late_seconds=600,
            timeout_seconds=60.5,
        ),
        Schedule(name="mail", prompt="Answer this mail."),
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[[schedule]]\nevery = "1h"\n', 1, "name"),
        ('[[schedule]]\nname = "a"\nevery = "1x"\nprompt = "x"\n', 1, "is no interval"),
        ('[[schedule]]\nname = "a"\nevery = 5\nprompt = "x"\n', 3, "every"),
        ('[[schedule]]\nname = "a"\ncron = "99 * * * *"\nprompt = "x"\n', 1, "is no minute"),
        ('[[schedule]]\nname = "a"\nat = "2030-01-01T09:00"\nprompt = "x"\n', 1, "no time zone"),
        ('[[schedule]]\nname = "a"\nevery = "1h"\n', 1, "give a prompt"),
        ('[[schedule]]\nname = "a"\nprompt = "x"\nevry = "1h"\n', 4, "evry"),
        ('[[schedule]]\nname = "a"\n[[schedule]]\nname = "a"\n', 4, "there is a schedule 'a' already"),
    ],
)
def test_mistakes_are_reported_with_their_lines(tmp_path, text, line, message):
    with pytest.raises(BadConfig) as caught:
        load(tmp_path, text, trusted=True)
    assert [(each.line, message in each.message) for each in caught.value.faults] == [(line, True)]


def test_a_file_with_schedules_needs_trust(tmp_path):
    with pytest.raises(BadConfig, match="runs prompts that nobody has typed"):
        load(tmp_path, '[[schedule]]\nname = "a"\nprompt = "x"\n')
