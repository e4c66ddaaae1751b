"""What comes from people and other programs.

The `inbox` of a session, and the `mailbox` of a run, which sorts stored posts.
"""
