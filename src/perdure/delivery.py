"""What has come for a run before it begins. Above: `driver.py`. Below: `core`."""

from collections.abc import Sequence

from .core.fold import State
from .core.inbox import INBOX
from .core.mailbox import ANSWER, CANCEL, Mailbox
from .core.store import Post


def deliver_all(mailbox: Mailbox, posts: Sequence[Post], state: State, run_id: str, *, resuming: bool) -> list[Post]:
    """Put into the mailbox of a run what is for it; what is left came too late for an earlier one."""
    questions = {each.ask_id for each in state.questions} if resuming else set[str]()
    late: list[Post] = []
    for post in posts:
        if (
            (post.kind == CANCEL and post.named("run_id") != run_id)
            or (post.kind == ANSWER and post.named("ask_id") not in questions)
            or (post.kind == INBOX and post.named("item_id") not in state.inbox)
        ):
            late.append(post)
        else:
            mailbox.put(post)
    return late


def promote(mailbox: Mailbox) -> None:
    """Without a run that could end first, what was to follow it comes now."""
    if not mailbox.due:
        mailbox.steering, mailbox.follow_ups = mailbox.follow_ups, mailbox.steering
