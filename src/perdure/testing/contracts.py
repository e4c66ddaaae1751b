"""The contract of stores, as a test that anybody can run on a store of their own. Below: the chapters, and the seam.

    async def test_my_store_keeps_the_contract(tmp_path):
        left_out = await check_store(lambda: MyStore(tmp_path / "sessions"))
        assert not left_out

A broken promise is an `AssertionError` that says which.
"""

from perdure.core.error import ConfigError

from . import (
    contracts_store_drivers,
    contracts_store_faults,
    contracts_store_forks,
    contracts_store_listing,
    contracts_store_log,
    contracts_store_posts,
    contracts_store_redaction,
    contracts_store_search,
    contracts_store_upkeep,
)
from .contracts_store_trial import HOSTILE_TEXTS, UNENCODABLE, Chapter, FullDisk, LeftOut, Make, Restored, Trial

__all__ = ["HOSTILE_TEXTS", "UNENCODABLE", "check_store"]

_CHAPTERS: tuple[Chapter, ...] = (
    *contracts_store_log.CHAPTERS,
    *contracts_store_drivers.CHAPTERS,
    *contracts_store_listing.CHAPTERS,
    *contracts_store_posts.CHAPTERS,
    *contracts_store_forks.CHAPTERS,
    *contracts_store_redaction.CHAPTERS,
    *contracts_store_faults.CHAPTERS,
    *contracts_store_search.CHAPTERS,
    *contracts_store_upkeep.CHAPTERS,
)


async def check_store(
    make: Make, *, full_disk: FullDisk | None = None, restored: Restored | None = None
) -> dict[str, str]:
    """Hold a store against its contract. Gives the chapters that were left out, each with the reason.

    `make` is called for each chapter and gives an open store; each is closed again. Let it give a new object of the
    same place each time: then two of them are tried against each other as well. Chapters use session ids of their own,
    so a place that already holds sessions will do, and keeps them.

    What a store can do beyond the rest is seen by its type (`Immediate`, `Searchable`, `Maintained`), and that it
    cannot take a session over by the `Unsupported` that it raises.

    `full_disk` is called with a store and gives a context manager, within which no more than some 100 kB can be
    written to the place of that store. `restored` is called with the path of a backup and gives a store of it.
    """
    if not callable(make):
        raise ConfigError(f"check_store({make!r}): give a function that makes a store, such as lambda: MyStore(...)")
    for name, hook in (("full_disk", full_disk), ("restored", restored)):
        if hook is not None and not callable(hook):
            raise ConfigError(f"check_store({name}={hook!r}): give a function, or leave it out")
    left_out: dict[str, str] = {}
    for chapter in _CHAPTERS:
        title = chapter.__name__.strip("_")
        trial = Trial(make, title, full_disk, restored)
        try:
            await chapter(trial)
        except LeftOut as reason:
            left_out[title.replace("_", " ")] = str(reason)
        finally:
            await trial.close()
    return left_out
