"""The id of this machine: made once, stored in the home, replaced in a copy of the home."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from burnd.errors import StorageError
from burnd.ledger.files import read_plain, replace_file

log = structlog.get_logger()
SYSTEM_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_ID_BYTES = 8


class _Stored(msgspec.Struct):
    """`system` is a hash: machine-id(5) asks not to copy that id."""

    id: str
    system: str
    device: int
    inode: int

    def is_at(self, place: _Stored) -> bool:
        if (self.system, self.inode) != (place.system, place.inode):
            return False
        # a device without a major number gets another number at each mount
        return not (os.major(self.device) and os.major(place.device)) or self.device == place.device


def machine_id(path: Path, system_files: Sequence[str] = SYSTEM_FILES) -> str | None:
    """None if it cannot be stored: an id must stay the same."""
    try:
        facts = os.stat(path.parent)
        system = ""
        for name in system_files:
            with contextlib.suppress(OSError):
                if text := read_plain(name).strip():
                    system = hashlib.sha256(b"burnd " + text).hexdigest()[:32]
                    break
        place = _Stored(secrets.token_hex(_ID_BYTES), system, facts.st_dev, facts.st_ino)
        try:
            stored = msgspec.json.decode(read_plain(path), type=_Stored)
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            stored = None
        if stored is not None and stored.is_at(place):
            return stored.id
        replace_file(path, msgspec.json.encode(place))
    except (OSError, StorageError) as error:
        log.warning("machine.waiting", error=type(error).__name__)
        return None
    log.info("machine.named", machine=place.id, is_copy=stored is not None)
    return place.id
