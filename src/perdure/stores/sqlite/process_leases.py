"""The leases of this process on the sessions of one SQLite file, and whether another process that has one is alive.

The holder of a lease names the lock of its process (`stores/process_lock.py`). A holder without one, where no lock
could be had, and one whose lock cannot be seen, is known by the id of its process and its start.
"""

import msgspec

from perdure.core.error import StoreError
from perdure.core.store import Lease
from perdure.stores.lease_holder_process import LeaseHolderProcess, describe_this_process
from perdure.stores.process_lock import ProcessLock, find_lock_state


class LockingLeaseHolder(LeaseHolderProcess, frozen=True):
    """The process that has the lease of a session in an SQLite file, with the name of its lock."""

    lock: str = ""


# Made here, and not when it is first used: that may be on two threads at once, which msgspec does not support.
_holders = msgspec.json.Decoder(LockingLeaseHolder)


def parse_locking_holder(text: str | None) -> LockingLeaseHolder | None:
    """Parse the lease holder recorded in a file; `None` if none is recorded or it cannot be parsed."""
    if not text:
        return None
    try:
        return _holders.decode(text)
    except msgspec.DecodeError:
        return None


class ProcessLeases(set[Lease]):
    """The leases of this process on the sessions of one file, and the lock by which others see that it is alive."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self.lock = ProcessLock(path)

    def build_holder_json(self, now: float) -> str:
        """Return this process as the holder of a lease that it acquires now. Raises `StoreError`."""
        me, lock = describe_this_process(now), self.lock.get_name()
        if not (lock or me.started):
            raise StoreError(
                f"no lock could be had beside the store {self._path!r}, by which other processes see that this one is "
                "alive: check the permissions of its folder, the disk, and the number of open files"
            )
        holder = LockingLeaseHolder(me.pid, me.host, me.machine, me.started, me.since, lock)
        return msgspec.json.encode(holder).decode()

    def is_driven(self, lease: Lease, holder: LockingLeaseHolder) -> bool:
        """Return True if this process has the lease, or its holder is another process that is alive."""
        return lease in self or self.is_alive(holder)

    def is_alive(self, holder: LockingLeaseHolder) -> bool:
        """Return True if the holder of a lease is another process, and alive."""
        if holder.lock:
            if self.lock.owns(holder.lock):
                return False
            state = find_lock_state(self._path, holder.lock)
            if state is not None:
                return state
        return not holder.is_this_process and holder.is_alive
