"""Ready-made tools for agents."""
