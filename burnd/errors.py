"""All errors that burnd raises on purpose.

BurndError                      a fault, the thing it concerns, and a remedy
├── ConfigError                 a key or a value in config.toml, config.json or the environment
├── HomeError                   the home cannot be used
│   ├── HomeBusy                another daemon has its lock
│   └── SocketTaken             another file is at the path of the socket
├── StorageError                the ledger or content could not be written or read
│   ├── NotNow                  a retry may succeed; nothing is lost until then
│   │   ├── NoSpace             the disk is full, over quota, read-only or below the reserve
│   │   ├── NotAllowed          permissions were changed
│   │   └── Locked              another program has locked the file
│   ├── BlobsDamaged            the blob database is malformed
│   ├── FileReplaced            a file is not the one that was opened: reopen, recover, rebuild
│   ├── HomeReplaced            the home was moved or deleted: the process must end
│   └── SyncFailed              fsync failed: the process must end
└── IndexDamaged                the index is malformed and must be rebuilt
"""

from __future__ import annotations


class BurndError(Exception):
    """Base of all errors. Its text is "thing: what (remedy)"."""

    def __init__(self, what: str, thing: str = "", remedy: str = "") -> None:
        self.what, self.thing, self.remedy = what, thing, remedy
        super().__init__(": ".join(filter(None, (thing, what))) + (f" ({remedy})" if remedy else ""))


class ConfigError(BurndError):
    """A setting is unknown or its value cannot be used."""

    def __init__(self, where: str, key: str, reason: str) -> None:
        self.where, self.key, self.reason = where, key, reason
        super().__init__(reason, f"{where}: {key}" if key else where)


class HomeError(BurndError):
    """The home is not a folder, not accessible, or open to other users."""


class HomeBusy(HomeError):
    """Another daemon uses the home; `pid` is its process if known."""

    def __init__(self, home: str, pid: int | None) -> None:
        self.pid = pid
        who = f"another burnd (pid {pid}) is using it" if pid else "another burnd is using it"
        super().__init__(who, home, "stop that one first, or set RELAYBURN_HOME to another folder")


class SocketTaken(HomeError):
    """The path of the socket is a file, a link or another user's socket, or its folder is not private."""


class StorageError(BurndError):
    """The ledger or the content store could not be written or read."""


class NotNow(StorageError):
    """A write is impossible at the moment; nothing partial was left behind."""


class NoSpace(NotNow):
    """No disk space to append."""


class NotAllowed(NotNow):
    """Permissions or owner of a file in the home were changed, so it cannot be read or written."""


class Locked(NotNow):
    """Another program has locked a file for longer than the timeout."""


class BlobsDamaged(StorageError):
    """SQLite reports that the blob database is malformed; it is moved away."""


class FileReplaced(StorageError):
    """Another program edited, truncated, moved or deleted the ledger or a sidecar."""


class HomeReplaced(StorageError):
    """The home was deleted or moved; its path may belong to another daemon now."""

    def __init__(self, home: str) -> None:
        super().__init__("was deleted or moved while burnd was running", home, "start burnd again")


class SyncFailed(StorageError):
    """fsync failed: the kernel may have dropped written pages, so the process must not continue."""


class IndexDamaged(BurndError):
    """SQLite reports that the index is malformed, or it belongs to another ledger."""
