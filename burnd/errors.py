"""All errors that burnd raises on purpose, reports of unexpected ones, and the remedy for a missing package.

BurndError
├── ConfigError
├── HomeError
│   ├── HomeBusy
│   └── SocketTaken
├── StorageError
│   ├── NotNow
│   │   ├── NoSpace
│   │   ├── NotAllowed
│   │   └── Locked
│   ├── BlobsDamaged
│   ├── FileReplaced
│   ├── HomeReplaced
│   └── SyncFailed
└── IndexDamaged
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class BurndError(Exception):
    """A fault, the thing it concerns, and a remedy; as text "thing: what (remedy)"."""

    def __init__(self, what: str, thing: str = "", remedy: str = "") -> None:
        self.what, self.thing, self.remedy = what, thing, remedy
        super().__init__(": ".join(filter(None, (thing, what))) + (f" ({remedy})" if remedy else ""))


class ConfigError(BurndError):
    """A key or value in config.toml, config.json or the environment cannot be used."""

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
    """A write is impossible at the moment; nothing partial was left behind, and a retry may succeed."""


class NoSpace(NotNow):
    """The disk is full, over quota, read-only or below the reserve."""


class NotAllowed(NotNow):
    """Permissions or owner of a file in the home were changed."""


class Locked(NotNow):
    """Another program has locked a file for longer than the timeout."""


class BlobsDamaged(StorageError):
    """SQLite reports that the blob database is malformed; it is moved away."""


class FileReplaced(StorageError):
    """Another program edited, truncated, moved or deleted the ledger or a sidecar."""


class HomeReplaced(StorageError):
    """The home was deleted or moved, and its path may belong to another daemon: the process must end."""

    def __init__(self, home: str) -> None:
        super().__init__("was deleted or moved while burnd was running", home, "start burnd again")


class SyncFailed(StorageError):
    """fsync failed: the kernel may have dropped written pages, so the process must not continue."""


class IndexDamaged(BurndError):
    """SQLite reports that the index is malformed, or it belongs to another ledger."""


# Unexpected errors are reported by type and location only: their text may quote a prompt. Imports are late, since
# burnctl imports this module at every start.


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def error_types(error: BaseException) -> str:
    return ", ".join(sorted({type(one).__name__ for one in leaves(error)}))


def error_location(error: BaseException) -> str:
    import traceback  # noqa: PLC0415
    from pathlib import PurePath  # noqa: PLC0415

    frames = traceback.extract_tb(next(leaves(error)).__traceback__)
    return f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def write_stderr(line: str, seconds: float = 1.0) -> None:
    """Gives up if stderr is not read, as in a stopped terminal."""
    import os  # noqa: PLC0415
    import threading  # noqa: PLC0415
    from contextlib import suppress  # noqa: PLC0415

    def write() -> None:
        with suppress(OSError):
            os.write(2, f"{line}\n".encode("utf-8", "replace"))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(seconds)


def report_uncaught(report: Callable[[BaseException], None]) -> None:
    """Python would print their text."""
    import sys  # noqa: PLC0415
    import threading  # noqa: PLC0415

    def pass_on(error: BaseException | None) -> None:
        if error is not None:
            report(error)

    sys.excepthook = lambda _kind, error, _trace: pass_on(error)
    threading.excepthook = lambda caught: pass_on(caught.exc_value)
    sys.unraisablehook = lambda caught: pass_on(caught.exc_value)


# Optional packages.
MCP, PARQUET, SEARCH = "mcp>=2", "pyarrow>=17", "tantivy>=0.26"
FLEET, POSTGRES = "duckdb>=1.1", "psycopg[binary]>=3.2"


def to_install(package: str) -> str:
    """Names the interpreter: a bare `pip` may belong to another environment."""
    import sys  # noqa: PLC0415
    from shlex import quote  # noqa: PLC0415

    return f"{quote(sys.executable)} -m pip install {quote(package)}"
