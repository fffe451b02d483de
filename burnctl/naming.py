"""Sessions as people name them: by the first characters of an id, which is what burnctl shows."""

from __future__ import annotations

from burnctl.errors import Failed
from burnd import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from burnctl.client import Client

_LEAST, _UUID, _OPENCODE = 8, 36, 30  # characters: the least that burnctl prints of an id, and whole ones


def whole_id(client: Client, given: str | None) -> str | None:
    """The id that begins so. One that burnd does not know yet is taken as it is; raises Failed when several do."""
    if not given:
        return given
    try:
        return str(client.sessions_meta(given)["sessionId"])
    except Failed as error:
        if error.code not in (protocol.NOT_FOUND, protocol.NO_SUCH_METHOD):
            raise
        return given


def is_shortened(given: str) -> bool:
    """Whether it reads like the beginning of a harness's id and not like one of somebody's own making."""
    rest = given.removeprefix("ses_")
    if rest != given:
        return len(rest) >= _LEAST and len(given) < _OPENCODE and rest.isalnum()
    return _LEAST <= len(given) < _UUID and set(given) <= set("0123456789abcdef-")
