"""Everything that can go wrong in burnd and that somebody may want to catch or read.

BurndError                      what happened, to which thing, what to do
├── ConfigError                 a key or a value in config.toml, config.json or the environment
├── HomeError                   the home cannot be used as it is
│   ├── HomeBusy                another daemon holds it
│   └── SocketTaken             what stands where the socket goes must not be touched
├── StorageError                the truth could not be written or read
│   ├── NotNow                  it may well succeed later, and nothing is lost until then
│   │   ├── NoSpace             the disk is full, over quota, read-only or below the reserve
│   │   ├── NotAllowed          its rights were changed
│   │   └── Locked              somebody else holds the file
│   ├── BlobsDamaged            the file of large content cannot be read any more
│   ├── FileReplaced            a file is no longer the one we wrote: reopen, recover, rebuild
│   ├── HomeReplaced            the home is no longer the folder we hold: the process must end
│   └── SyncFailed              the kernel could not write what it had taken: the process must end
└── IndexDamaged                the index cannot be trusted and is to be rebuilt
"""

from __future__ import annotations


class BurndError(Exception):
    """The base: a sentence for a person, made of what happened, to which thing, and what to do."""

    def __init__(self, what: str, thing: str = "", remedy: str = "") -> None:
        self.what, self.thing, self.remedy = what, thing, remedy
        super().__init__(": ".join(filter(None, (thing, what))) + (f" ({remedy})" if remedy else ""))


class ConfigError(BurndError):
    """Raised when a setting is unknown or its value cannot be used; names file, key and reason."""

    def __init__(self, where: str, key: str, reason: str) -> None:
        self.where, self.key, self.reason = where, key, reason
        super().__init__(reason, f"{where}: {key}" if key else where)


class HomeError(BurndError):
    """Raised when the home is missing rights, is open to others or is not a folder."""


class HomeBusy(HomeError):
    """Raised when another daemon holds the home; `pid` is that daemon, where it could be told."""

    def __init__(self, home: str, pid: int | None) -> None:
        self.pid = pid
        who = f"another burnd (pid {pid}) is using it" if pid else "another burnd is using it"
        super().__init__(who, home, "stop that one first, or set RELAYBURN_HOME to another folder")


class SocketTaken(HomeError):
    """Raised when a file, a link or somebody else's socket is where ours should be, or its folder is not private."""


class StorageError(BurndError):
    """Raised when the ledger or the content store could not be written or read."""


class NotNow(StorageError):
    """Raised when something cannot be written at the moment; nothing half written is left of it."""


class NoSpace(NotNow):
    """Raised when there is no room to append."""


class NotAllowed(NotNow):
    """Raised when something of ours may not be written or read any more: somebody changed its rights, or its owner."""


class Locked(NotNow):
    """Raised when another program holds a file of ours for longer than one waits."""


class BlobsDamaged(StorageError):
    """Raised when SQLite says that the file of large content is malformed; it is set aside."""


class FileReplaced(StorageError):
    """Raised when the ledger or a sidecar was edited, cut, moved or deleted behind our back."""


class HomeReplaced(StorageError):
    """Raised when the home was removed or moved: what stands at its path now may be another daemon's."""

    def __init__(self, home: str) -> None:
        super().__init__("is not the folder that this burnd holds", home, "it was removed or moved: start burnd again")


class SyncFailed(StorageError):
    """Raised when fsync failed: the kernel may have dropped what we wrote, so nothing may go on from here."""


class IndexDamaged(BurndError):
    """Raised when SQLite says that the index is malformed, or it does not belong to this ledger."""
