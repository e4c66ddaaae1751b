"""An agent over HTTP, beside others that do the same work against the same server."""
