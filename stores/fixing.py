"""What becomes of the messages of a store: the same decisions as for a live response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsml_core.events import End
from dsml_core.policy import Policy
from dsml_core.transcript import may_leak, repair
from stores.base import Fix, Message, Session, may_hold_markup


class Fixer:
    """Gives the fix of each message. Messages come as `Store.messages` gives them.

    It keeps those texts a model may be quoting (users', tools', system's) that hold markup, until the session ends.
    """

    def __init__(self) -> None:
        self._session: Session | None = None
        self._quoted: dict[str, None] = {}

    def fix(self, message: Message) -> Fix | None:
        """None where nothing leaked."""
        if message.session != self._session:
            self._session, self._quoted = message.session, {}
        if not message.by_model:
            self._quoted.update(dict.fromkeys(filter(may_hold_markup, message.texts)))
            return None
        if message.end is End.REFUSAL or not any(map(may_leak, message.texts)):
            return None
        policy = Policy(quoted=tuple(self._quoted))
        parts = tuple(
            repair(text, message.tools, policy, native=message.native, end=message.end) for text in message.texts
        )
        return Fix(message, parts) if any(part.removed for part in parts) else None


def fixes(messages: Iterable[Message]) -> Iterator[Fix]:
    """The fixes of all messages that need one."""
    fixer = Fixer()
    return (found for message in messages if (found := fixer.fix(message)) is not None)
