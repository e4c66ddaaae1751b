"""Test suite for your own stores: `check_store` checks what every `Store` must guarantee.

    async def test_my_store_keeps_the_contract(tmp_path):
        left_out = await check_store(lambda: MyStore(tmp_path / "sessions"))
        assert not left_out

A violation is an `AssertionError` that says which guarantee is broken.
"""

from perdure._core.values.error import ConfigError

from . import driver as contracts_store_drivers
from . import faults as contracts_store_faults
from . import forks as contracts_store_forks
from . import interrupted as contracts_store_interrupted
from . import listing as contracts_store_listing
from . import log as contracts_store_log
from . import maintenance as contracts_store_upkeep
from . import posts as contracts_store_posts
from . import redaction as contracts_store_redaction
from . import search as contracts_store_search
from .setup import (
    HOSTILE_TEXTS,
    UNENCODABLE,
    CheckSkipped,
    FullDisk,
    MakeStore,
    OpenBackup,
    StoreCheck,
    StoreUnderTest,
)

__all__ = ["HOSTILE_TEXTS", "UNENCODABLE", "check_store"]

_CHECKS: tuple[StoreCheck, ...] = (
    *contracts_store_log.CHECKS,
    *contracts_store_drivers.CHECKS,
    *contracts_store_listing.CHECKS,
    *contracts_store_posts.CHECKS,
    *contracts_store_interrupted.CHECKS,
    *contracts_store_forks.CHECKS,
    *contracts_store_redaction.CHECKS,
    *contracts_store_faults.CHECKS,
    *contracts_store_search.CHECKS,
    *contracts_store_upkeep.CHECKS,
)


async def check_store(
    make: MakeStore, *, full_disk: FullDisk | None = None, restored: OpenBackup | None = None
) -> dict[str, str]:
    """Check that a store gives the guarantees of every `Store`; return the checks that were skipped, with reasons.

    `make` is called for each check and returns an open store, which is closed again. If it returns a new object for the
    same location each time, two of them are tested against each other as well. Checks use their own session ids, so the
    location may already contain sessions, and keeps them.

    Optional abilities are recognised by type (`NonBlockingAppendStore`, `SearchableStore`, `MaintainableStore`), and a
    store that cannot take over a session by the `UnsupportedByStore` that it raises.

    `full_disk` is called with a store and returns a context manager, within which only about 100 kB can be written to
    the store's location. `restored` is called with the path of a backup and returns a store of it.
    """
    if not callable(make):
        raise ConfigError(f"check_store({make!r}): give a function that makes a store, such as lambda: MyStore(...)")
    for name, hook in (("full_disk", full_disk), ("restored", restored)):
        if hook is not None and not callable(hook):
            raise ConfigError(f"check_store({name}={hook!r}): give a function, or leave it out")
    left_out: dict[str, str] = {}
    for chapter in _CHECKS:
        title = chapter.__name__.strip("_")
        trial = StoreUnderTest(make, title, full_disk, restored)
        try:
            await chapter(trial)
        except CheckSkipped as reason:
            left_out[title.replace("_", " ")] = str(reason)
        finally:
            await trial.close()
    return left_out
