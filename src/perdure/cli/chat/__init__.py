"""The chat of `perdure` without a subcommand: an inline terminal program over one `Session`.

prompt_toolkit and rich are imported at first use, and only here: they are the extra `perdure[chat]`.
"""
