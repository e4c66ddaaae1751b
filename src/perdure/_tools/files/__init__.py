"""Files: `tools` reads, writes and edits them through the protocol in `backend`, which `local` implements.

`records` are what the log keeps of reads and changes; `changes` folds them, and `history` undoes them.
"""
