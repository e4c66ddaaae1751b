# Written by `python -m scripts.exports`, from the table in testing.py. Not edited by hand.

from ._core.values.clock import Clock as Clock
from ._runtime.transfer import Recording as Recording
from ._testing.browser import ScriptedBrowser as ScriptedBrowser
from ._testing.browser import ScriptedPage as ScriptedPage
from ._testing.cache import assert_cache_stable as assert_cache_stable
from ._testing.clock import FakeClock as FakeClock
from ._testing.files import MemoryFiles as MemoryFiles
from ._testing.model import Pause as Pause
from ._testing.model import Reply as Reply
from ._testing.model import Scripted as Scripted
from ._testing.model import ScriptedModel as ScriptedModel
from ._testing.model import ScriptEnded as ScriptEnded
from ._testing.model import ScriptStep as ScriptStep
from ._testing.model import call as call
from ._testing.model import calls as calls
from ._testing.model import pause as pause
from ._testing.model import thinking as thinking
from ._testing.model_contract import check_model as check_model
from ._testing.recorder import Recorder as Recorder
from ._testing.replay import Diverged as Diverged
from ._testing.replay import check_replay as check_replay
from ._testing.replay import record as record
from ._testing.replay import replayed as replayed
from ._testing.shell import ScriptedShell as ScriptedShell
from ._testing.store_contract.suite import check_store as check_store
from ._testing.web import ScriptedWeb as ScriptedWeb
from ._work.replay.differences import DifferenceKind as DifferenceKind
from ._work.replay.differences import Divergence as Divergence
from ._work.replay.replay import ReplayReport as ReplayReport
from ._work.replay.replay import Source as Source
from ._work.replay.replay import replay as replay

__all__ = [
    "Clock",
    "DifferenceKind",
    "Diverged",
    "Divergence",
    "FakeClock",
    "MemoryFiles",
    "Pause",
    "Recorder",
    "Recording",
    "ReplayReport",
    "Reply",
    "ScriptEnded",
    "ScriptStep",
    "Scripted",
    "ScriptedBrowser",
    "ScriptedModel",
    "ScriptedPage",
    "ScriptedShell",
    "ScriptedWeb",
    "Source",
    "assert_cache_stable",
    "call",
    "calls",
    "check_model",
    "check_replay",
    "check_store",
    "pause",
    "record",
    "replay",
    "replayed",
    "thinking",
]
