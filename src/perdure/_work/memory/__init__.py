"""Long-term memory: texts that an agent remembers across sessions, in an SQLite file."""
