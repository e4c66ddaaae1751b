"""The filter of system calls of the sandbox: a program for the kernel (seccomp, in classic BPF).

It refuses what no build, test or editor needs, so that a mistake of the kernel there is no way out of the sandbox.

`docs/security.md` lists what is refused. The program is assembled here, so that no library is needed.
"""

import errno
import os
import platform
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias

Instruction: TypeAlias = tuple[int, int, int, int]
"""Code, instructions to skip if the test is true, and if it is false, and a constant."""
Program: TypeAlias = tuple[Instruction, ...]

_LOAD: Final = 0x20
_AND: Final = 0x54
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_ABOVE: Final = 0x25
_JUMP_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
"""Of eight bytes each. The lower half is looked at, which is all that the kernel uses of an `int`."""
_ALLOW: Final = 0x7FFF_0000
_PERMIT: Final[Program] = ((_RETURN, 0, 0, _ALLOW),)
_KILL: Final = 0x8000_0000
_ERROR: Final = 0x0005_0000
_NEWEST: Final = 469
"""The last number of a system call that was looked at: newer ones are refused as if the kernel did not have them."""


class Machine(NamedTuple):
    """A kind of processor that there is a filter for: the kernel's name for it, and its column of numbers."""

    architecture: int
    column: int


MACHINES: Final = {"x86_64": Machine(0xC000_003E, 0), "aarch64": Machine(0xC000_00B7, 1)}
"""The kinds of processors that there is a filter for."""

_ABSENT: Final = -1
MISSING_CALLS: Final[Mapping[str, tuple[int, int]]] = {
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "userfaultfd": (323, 282), "memfd_secret": (447, 447), "modify_ldt": (154, _ABSENT),
    "clone3": (435, 435), "openat2": (437, 437),  # whose arguments a filter cannot see: C libraries use the older ones
    "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "uselib": (134, _ABSENT), "ustat": (136, _ABSENT),
    "sysfs": (139, _ABSENT), "_sysctl": (156, _ABSENT), "create_module": (174, _ABSENT),
    "query_module": (178, _ABSENT), "get_kernel_syms": (177, _ABSENT), "statmount": (457, 457),
    "listmount": (458, 458), "file_setattr": (469, 469),
}  # fmt: skip
"""Calls that are answered as if the kernel did not have them, by name: their numbers on x86_64 and on aarch64."""
REFUSED_CALLS: Final[Mapping[str, tuple[int, int]]] = {
    # other processes, and the kernel's own state
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272), "bpf": (321, 280),
    "perf_event_open": (298, 241), "syslog": (103, 116), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # modules, start and end of the machine, devices
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "iopl": (172, _ABSENT), "ioperm": (173, _ABSENT), "vhangup": (153, 58),
    # clock and names of the machine
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162),
    # mounts, roots, namespaces, files by handle
    "mount": (165, 40), "umount2": (166, 39), "mount_setattr": (442, 442), "open_tree": (428, 428),
    "open_tree_attr": (467, 467), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # where memory lies
    "move_pages": (279, 239), "migrate_pages": (256, 238), "mbind": (237, 235), "get_mempolicy": (239, 236),
    "set_mempolicy": (238, 237), "set_mempolicy_home_node": (450, 450),
}  # fmt: skip
"""Calls that are never permitted, by name: their numbers on x86_64 and on aarch64."""

_NEW_NAMESPACES: Final = 0x7E02_0000
_NEW_TIME_NAMESPACE: Final = 0x80
_SET_ID_BITS: Final = 0o6000
_CREATES: Final = os.O_CREAT | 0o20000000  # O_TMPFILE, without the bits that it has in common with O_DIRECTORY
_TERMINAL_INPUT: Final = (0x5412, 0x541C)
"""`TIOCSTI` and `TIOCLINUX`, which type on a terminal."""
_SAME_PERSONALITY: Final = (0, 0xFFFF_FFFF)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_TYPES_OF_PAIRS: Final = (1, 5)
"""Streams and packets: a datagram socket of a pair can also send to a path."""
_PROTOCOLS: Final = (0, 1, 6, 17, 58)
"""The usual one, and ICMP, TCP and UDP: others load parts of the kernel that are rarely looked at."""


def open_system_call_filter(*, unix_sockets: bool = False) -> int:
    """Open a file with the filter, for the option `--seccomp` of bubblewrap; return its descriptor.

    With `unix_sockets`, commands can make Unix sockets, and so connect to those of other programs that they can see.
    """
    descriptor = os.memfd_create("perdure-filter")
    os.write(descriptor, build_system_call_filter(platform.machine(), unix_sockets=unix_sockets))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def has_system_call_filter() -> bool:
    """Return True if there is a filter for the processor of this machine."""
    return platform.machine() in MACHINES


@cache
def build_system_call_filter(machine: str, *, unix_sockets: bool = False) -> bytes:
    """Assemble the filter for a kind of processor, as `sock_filter` records."""
    architecture, column = MACHINES[machine]
    blocks = [
        *[_for_calls(numbers, column, body) for numbers, body in _list_checked_calls(unix_sockets=unix_sockets)],
        *[_for_calls(numbers, column, _refuse(errno.EPERM)) for numbers in REFUSED_CALLS.values()],
        *[_for_calls(numbers, column, _refuse(errno.ENOSYS)) for numbers in MISSING_CALLS.values()],
    ]
    program = (
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        _return(_KILL),  # a program for another kind of processor, whose calls have other numbers
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_IF_ABOVE, 0, 1, _NEWEST),  # among them those of x32, whose numbers have a bit more
        *_refuse(errno.ENOSYS),
        *[each for block in blocks for each in block],
        _return(_ALLOW),
    )
    return b"".join([struct.pack("<HBBI", *each) for each in program])


def _list_checked_calls(*, unix_sockets: bool) -> Iterable[tuple[tuple[int, int], Program]]:
    """Yield the calls that are permitted or not by their arguments: their numbers, and the program that decides."""
    refuse = _refuse(errno.EPERM)
    for numbers, mode in (
        ((90, _ABSENT), 1),  # chmod
        ((91, 52), 1),  # fchmod
        ((268, 53), 2),  # fchmodat
        ((452, 452), 2),  # fchmodat2
        ((85, _ABSENT), 1),  # creat
        ((133, _ABSENT), 1),  # mknod
        ((259, 33), 2),  # mknodat
        ((83, _ABSENT), 1),  # mkdir
        ((258, 34), 2),  # mkdirat
    ):
        yield numbers, _if_any_bit(mode, _SET_ID_BITS, refuse)
    for numbers, flags in (((2, _ABSENT), 1), ((257, 56), 2)):  # open, openat
        yield numbers, _if_any_bit(flags, _CREATES, _if_any_bit(flags + 1, _SET_ID_BITS, refuse))
    yield (56, 220), _if_any_bit(0, _NEW_NAMESPACES, refuse)  # clone
    yield (272, 97), _if_any_bit(0, _NEW_NAMESPACES | _NEW_TIME_NAMESPACE, refuse)  # unshare
    yield (16, 29), _by_argument(1, dict.fromkeys(_TERMINAL_INPUT, refuse), _PERMIT)  # ioctl
    yield (135, 92), _by_argument(0, dict.fromkeys(_SAME_PERSONALITY, _PERMIT), refuse)  # personality
    internet = _by_argument(2, dict.fromkeys(_PROTOCOLS, _PERMIT), _refuse(errno.EPROTONOSUPPORT))
    families = {
        _INET: internet,
        _INET6: internet,
        _NETLINK: _by_argument(2, {0: _PERMIT}, _refuse(errno.EPROTONOSUPPORT)),  # interfaces and addresses
        _UNIX: _PERMIT if unix_sockets else refuse,
    }
    yield (41, 198), _by_argument(0, families, _refuse(errno.EAFNOSUPPORT))  # socket
    kinds = _by_argument(1, dict.fromkeys(_TYPES_OF_PAIRS, _PERMIT), refuse, mask=0xF)
    yield (53, 199), _by_argument(0, {_UNIX: _PERMIT if unix_sockets else kinds}, refuse)  # socketpair


def _for_calls(numbers: tuple[int, int], column: int, body: Program) -> Program:
    """Return a program that runs the body, which returns, for one call; and goes on for others."""
    number = numbers[column]
    return () if number == _ABSENT else ((_JUMP_IF_EQUAL, 0, len(body), number), *body)


def _if_any_bit(argument: int, mask: int, then: Program) -> Program:
    """Return a program that runs `then` if the argument has a bit of the mask, and permits the call otherwise."""
    return (_load(argument), (_JUMP_IF_ANY_BIT, 0, len(then), mask), *then, *_PERMIT)


def _by_argument(
    argument: int, cases: Mapping[int, Program], otherwise: Program, *, mask: int | None = None
) -> Program:
    """Return a program that chooses by the value of an argument, or of some bits of it."""
    masked: Sequence[Instruction] = () if mask is None else ((_AND, 0, 0, mask),)
    chosen = [each for value, body in cases.items() for each in ((_JUMP_IF_EQUAL, 0, len(body), value), *body)]
    return (_load(argument), *masked, *chosen, *otherwise)


def _load(argument: int) -> Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument)


def _return(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _refuse(number: int) -> Program:
    return (_return(_ERROR | number),)
