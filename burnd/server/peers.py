"""Who is calling, as the kernel tells it: decided before a byte of theirs is read."""

from __future__ import annotations

import socket
import struct
import sys
from typing import NamedTuple

# macOS and the BSDs: <sys/un.h>, which Python does not export.
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_XUCRED_BYTES = 76


class Peer(NamedTuple):
    """The process at the other end; its id is 0 where the system does not tell it."""

    uid: int
    pid: int


def peer_of(connection: socket.socket) -> Peer:
    """Raises OSError when the system cannot tell: then nobody is let in."""
    if sys.platform == "linux":
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return Peer(uid, pid)
    return _local_peer(connection)


def _local_peer(connection: socket.socket) -> Peer:
    _, uid = struct.unpack_from("=II", connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES))
    try:
        pid = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
    except OSError:
        pid = 0
    return Peer(uid, pid)


def is_welcome(peer: Peer, *, own_uid: int, root_too: bool) -> bool:
    return peer.uid == own_uid or (root_too and peer.uid == 0)
