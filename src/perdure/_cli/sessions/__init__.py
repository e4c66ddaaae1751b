"""Commands about sessions: list, show, search, fork, move, trace, answer, undo."""
