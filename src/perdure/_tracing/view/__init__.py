"""Views of a trace: tree, timelines, text, and a web page."""
