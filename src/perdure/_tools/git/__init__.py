"""Git: tools, and a backend that runs git so that no program of a repository runs.

`tools` has the tools and their backend protocol, `local` the backend. `mounts` is what sandboxed commands see of
repositories; `takeover` stores what they did to a private copy.
"""
