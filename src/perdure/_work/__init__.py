"""Work that is judged, repeated or unattended: graders, evals, reviews, goals, schedules, replays, memory."""
