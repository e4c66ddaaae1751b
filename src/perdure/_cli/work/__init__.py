"""Commands of work that is judged, repeated or unattended: evals, reviews, replays, goals, schedules."""
