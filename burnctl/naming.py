"""Sessions as people name them: by the first characters of an id, which is what burnctl shows."""

from __future__ import annotations

from burnctl.errors import Failed
from burnd import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from burnctl.client import Client


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
