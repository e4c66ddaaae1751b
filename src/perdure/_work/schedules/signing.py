"""Sign what is stored in the sessions of schedules, and leave out what another program has put there.

A store is open to every program that has it, and so to other parts of a program. Only what was signed with the key of
the runtime, for this session and this place in it, fires a schedule: nothing that was copied from elsewhere does.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from perdure._core.log.store import Post, Store, get_namespaced_session_id
from perdure._core.values.clock import Clock
from perdure._core.values.error import StoreError
from perdure._core.values.event import Custom, Entry
from perdure._core.values.jsonable import convert, to_jsonable
from perdure._io.home.keys import KEY_VARIABLE, RuntimeKey, build_process_key, load_runtime_key

logger = logging.getLogger("perdure")

_PURPOSE: Final = "schedule"
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class SignedValue(msgspec.Struct, frozen=True):
    """A value as it is stored, with its signature."""

    signed: Any
    at: float
    """When it was signed, in seconds since 1970."""
    signature: str


class SessionSigner:
    """Signs the records and posts of one session of schedules, and verifies them."""

    def __init__(self, store: Store, session_id: str, clock: Clock) -> None:
        self._place = get_namespaced_session_id(store, session_id)
        self._is_in_memory: bool = getattr(store, "is_process_local", False)
        self._clock = clock
        self._key: RuntimeKey | None = None
        self._warned: set[str] = set()

    # -- signing -------------------------------------------------------------------------------------------------------

    def sign_event(self, event: Custom, seq: int) -> Custom:
        """Return the event to store as entry number `seq`."""
        return Custom(event.name, self._sign(event.name, str(seq), event.data))

    def sign_post(self, post: Post) -> Post:
        """Return the post to store."""
        return msgspec.structs.replace(post, body=self._sign(post.kind, post.id, post.body))

    def _sign(self, kind: str, name: str, value: Any) -> dict[str, Any]:
        stored = msgspec.json.decode(msgspec.json.encode(to_jsonable(value)))  # as it will be read
        at = float(self._clock.now())
        signature = self._get_key().sign(_PURPOSE, self._build_message(kind, name, stored, at))
        return {"signed": stored, "at": at, "signature": signature}

    # -- verifying -----------------------------------------------------------------------------------------------------

    def list_verified_posts(self, posts: Sequence[Post], kinds: frozenset[str]) -> list[Post]:
        """Return the posts of these kinds that were signed for this session; others are reported once, and left."""
        found: list[Post] = []
        for post in posts:
            value = _decode(post.body) if post.kind in kinds else None
            if value is not None and self._is_signed(post.kind, post.id, value):
                found.append(msgspec.structs.replace(post, body=value.signed, at=value.at))
            elif post.kind in kinds:
                self._warn_once(
                    f"post {post.id}", f"post {post.id!r} is not signed with the key of this runtime, and fires nothing"
                )
        return found

    def open_entry(self, entry: Entry, *, refuse_foreign: bool) -> Entry | None:
        """Return an entry with the value that was signed; `None` if it was not: that is reported once.

        With `refuse_foreign`, an entry that was signed with another key raises `StoreError`: another machine that has
        another key may serve the same schedule, and each would fire it.
        """
        event = entry.event
        if not isinstance(event, Custom):
            return None
        value = _decode(event.data)
        if value is not None and self._is_signed(event.name, str(entry.seq), value):
            return msgspec.structs.replace(entry, at=value.at, event=Custom(event.name, value.signed))
        if value is not None and refuse_foreign:
            raise StoreError(
                f"session {self._place!r} has a record that another key has signed, or that was changed: let all "
                f"processes that serve the store have the same key, by {KEY_VARIABLE}; if the key is lost, begin the "
                f"schedule anew by `await store.delete({self._place!r})`"
            )
        self._warn_once(
            "records",
            f"record {entry.seq} is left out, as others like it: another program or a runtime with another key has "
            "stored it",
        )
        return None

    def _is_signed(self, kind: str, name: str, value: SignedValue) -> bool:
        message = self._build_message(kind, name, value.signed, value.at)
        return self._get_key().is_signed(_PURPOSE, message, value.signature)

    def _build_message(self, kind: str, name: str, stored: Any, at: float) -> bytes:
        return _encoder.encode([self._place, kind, name, at, stored])

    def _get_key(self) -> RuntimeKey:
        if self._key is None:
            self._key = build_process_key() if self._is_in_memory else load_runtime_key()
        return self._key

    def _warn_once(self, what: str, message: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("session %s: %s", self._place, message)


def _decode(body: Any) -> SignedValue | None:
    try:
        return convert(body, SignedValue)
    except (msgspec.ValidationError, TypeError):
        return None
