"""Pages and search results of the web.

`tools` fetches and searches through the protocols in `backend`, which `local` implements under an egress policy;
`html_text` makes pages readable.
"""
