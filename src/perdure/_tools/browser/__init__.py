"""A browser: `tools` controls it through the protocol in `backend`.

`local` drives a Chromium: `chromium` starts it, `session` has the pages of a session, `page` reads one page and
acts in it.
"""
