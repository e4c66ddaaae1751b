"""Collect what happens: traces, printed text, and a watchdog for the event loop."""
