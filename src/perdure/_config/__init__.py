"""Configuration files: read, checked, trusted, and made into an agent."""
