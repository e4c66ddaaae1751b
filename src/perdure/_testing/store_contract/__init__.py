"""The contract of stores: what `check_store` tests, a file for each promise."""
