"""What can go wrong between here and there. Above: whoever speaks to the network. Below: `core/error.py`.

NetError
├ Unreachable    nobody answered: nothing was received
├ BrokenOff      the answer ended before its end
├ TooSlow        a deadline passed: which one is in the message
├ TooLarge       an answer, or a line of it, is larger than we take
└ Unreadable     what came is not what it says it is
"""

from perdure.core.error import PerdureError


class NetError(PerdureError):
    """Something went wrong between here and there."""

    exit_code = 69


class Unreachable(NetError):
    """Nobody answered; nothing was received."""

    retryable = True


class BrokenOff(NetError):
    """The answer ended before its end."""

    retryable = True


class TooSlow(NetError):
    """A deadline passed."""

    retryable = True


class TooLarge(NetError):
    """An answer, or a line of it, is larger than we take."""


class Unreadable(NetError):
    """What came is not what it says it is: a broken compression, say."""
