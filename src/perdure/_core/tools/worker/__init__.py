"""Where plain functions run: in `threads`, or in a `process` whose program is `main`."""
