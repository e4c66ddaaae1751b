"""A model behind HTTP, whatever its API format; for authors of providers.

`http_model` sends requests in a `wire` with a `profile` and `auth`, encoded once (`memo`), within the limits of
`throttle`, and without what the endpoint rejects. `json_tools` and `think_tags` wrap models that lack tools, or
whose thinking has to be text.
"""
