"""One bit of a closed store flips: it says what was written, or the damage is told, and no effect is repeated."""

import shutil

import pytest

from perdure import StoreError
from perdure.stores import open_store, require_maintainable_store, restore
from tests.faults.flips import findings, flip, listening, say, whole_log, write
from tests.seeds import chance

SPECS = {"sqlite": "sqlite:{}/sessions.db", "files": "file:{}/sessions"}


@pytest.mark.faults
@pytest.mark.parametrize("kind", SPECS)
async def test_a_flipped_bit_is_told_or_changes_nothing_and_no_effect_is_repeated(kind, tmp_path, long, report):
    dice, log = chance("bit flips", kind), await whole_log()
    begun = next(place for place, entry in enumerate(log) if type(entry.event).__name__ == "ToolStarted")
    cuts = dice.sample(range(begun + 1, len(log)), 4)
    stores = [await write(SPECS[kind], tmp_path / f"{kind}-{cut}", log[:cut]) for cut in cuts]
    for number, written in enumerate(stores):  # what is not damaged tells nothing
        assert await findings(written, written.copy(tmp_path / f"good-{number}"), by_resume=bool(number % 2)) == (
            [],
            [],
        )
    trials, told = 500 if long else 60, 0
    for number in range(trials):
        written = dice.choice(stores)
        address = written.copy(copy := tmp_path / f"trial-{number}")
        where = flip(copy, dice)
        wrong, messages = await findings(written, address, by_resume=dice.random() < 0.5)
        assert not wrong, f"{wrong} after the flip of {where}, in the store of {written.folder.name}"
        told += bool(messages)
    report.append(f"bit flips, {kind}: {trials}, {told} of them told")
    assert told > trials / 4


@pytest.mark.faults
@pytest.mark.parametrize("kind", SPECS)
async def test_a_backup_with_a_flipped_bit_is_refused_and_nothing_is_created(kind, tmp_path, long, report):
    dice = chance("backups", kind)
    written = await write(SPECS[kind], tmp_path / "store", await whole_log())
    store = open_store(SPECS[kind].format(tmp_path / "store"))
    await require_maintainable_store(store).backup(str(tmp_path / "backup" / "sessions.db"))
    await store.aclose()
    trials, refused = 500 if long else 150, 0
    for number in range(trials):
        shutil.copytree(tmp_path / "backup", copy := tmp_path / f"copy-{number}")
        where = flip(copy, dice)
        place = tmp_path / f"restored-{number}"
        try:
            await restore(copy / "sessions.db", SPECS[kind].format(place))
        except StoreError:
            refused += 1
        else:
            pytest.fail(f"restored after the flip of {where}")
        assert not place.exists() or list(place.iterdir()) == []
    await restore(tmp_path / "backup" / "sessions.db", SPECS[kind].format(tmp_path / "good"))
    with listening() as told:
        good = open_store(SPECS[kind].format(tmp_path / "good"))
        assert await say(good) == written.said
        await good.aclose()
    assert told.messages == []
    report.append(f"bit flips in backups, {kind}: {trials}, {refused} refused")
