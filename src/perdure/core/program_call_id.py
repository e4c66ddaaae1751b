"""Ids of the tool calls that a model-written program makes: the id of the program's own call, a number and a hash.

    call_7#3-9f8e…    the third call of the program of `call_7`, with a digest of its name and arguments

A program that is run again after a crash makes the same calls, and finds their results by these ids. The digest shows
when it does not.
"""

SEPARATOR = "#"
_DIGEST_LENGTH = 16


def build_program_call_id(program_call_id: str, number: int, name: str, arguments: str) -> str:
    """Build the id of a call that a program makes, from its number in the program, its tool and its arguments."""
    import hashlib  # at first use: it loads OpenSSL

    digest = hashlib.sha256(f"{name}\n{arguments}".encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{build_program_call_prefix(program_call_id, number)}{digest}"


def build_program_call_prefix(program_call_id: str, number: int) -> str:
    """Build the beginning of the id of a program's tool call: the part before the hash of its tool and arguments."""
    return f"{program_call_id}{SEPARATOR}{number}-"


def find_program_call_id(call_id: str) -> str:
    """Extract, from the id of a program's tool call, the id of the call that runs the program; empty for others."""
    return call_id.rpartition(SEPARATOR)[0]
