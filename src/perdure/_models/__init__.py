"""Models: opened by name, reached over HTTP or run in this process; public as `perdure.models`.

`registry` opens one by name and `builder` puts it together from an `endpoint` (a model behind HTTP), one of the
`wires` (API formats) and the `catalogue` of providers. `local` runs in this process, `schemas` compiles JSON
Schemas to providers' dialects, `provider_errors` classifies failures, `probe` tests endpoints.
"""
