"""What the runtime needs from the machine.

HTTP, an egress policy, files, the user's folder and processes; it imports `_core` alone.
"""
