"""Ready-made watchers: functions that are called with each event of an agent, given as `Agent(watchers=…)`."""
