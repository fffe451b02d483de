"""Paths of the home and the files in it, and of the socket.

Imports only quick modules: burnctl imports this one at every start.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SOCKET_PATH_LIMIT = 100  # bytes; the kernel refuses at 104 (macOS) or 108 (Linux)


class Home:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.toml"
        self.older_config = root / "config.json"
        self.ledger = root / "ledger.jsonl"
        self.content = root / "content"
        self.blobs = self.content / "blobs.db"
        self.index = root / "index"
        self.index_db = self.index / "burn.db"
        self.search = self.index / "search"
        self.spool = root / "spool"
        self.prices = root / "models.dev.json"
        self.crossings = root / "budgets-crossed.json"
        self.guard = root / "guard.json"
        self.machine = root / "machine.json"
        self.lock = root / "burnd.lock"
        self.log = root / "burnd.log"


def find_home(env: Mapping[str, str] = os.environ) -> Home:
    """`$RELAYBURN_HOME`, else `~/.relayburn`. Raises ValueError."""
    return Home(_path(home_folder(env)))


def user_home(env: Mapping[str, str] = os.environ) -> Path:
    """`HOME`, else that of the password database, else `/`, as in some containers."""
    return _path(_user_folder(env) or "/")


def socket_path(home: Home, env: Mapping[str, str] = os.environ) -> Path:
    """Raises ValueError if every candidate is too long for a socket."""
    return _path(socket_file(str(home.root), env))


# as strings, for burnctl: importing pathlib takes longer than an answer of the daemon


def home_folder(env: Mapping[str, str] = os.environ) -> str:
    if home := env.get("RELAYBURN_HOME"):
        return _absolute(home)
    if not (folder := _user_folder(env)):
        raise ValueError("no home folder: set HOME or RELAYBURN_HOME")
    return os.path.join(folder, ".relayburn")


def working_folder() -> str | None:
    """None if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None


def socket_file(home: str, env: Mapping[str, str] = os.environ) -> str:
    if path := env.get("BURND_SOCKET"):
        return _absolute(path)
    usual = os.path.join(home, "burnd.sock")
    if len(os.fsencode(usual)) <= SOCKET_PATH_LIMIT:
        return usual
    runtime = env.get("XDG_RUNTIME_DIR")
    if not runtime:
        raise ValueError(f"{usual} is too long for a socket: set XDG_RUNTIME_DIR, BURND_SOCKET or a shorter home")
    from hashlib import sha256  # noqa: PLC0415 - rarely needed

    return os.path.join(runtime, f"burnd-{sha256(os.fsencode(home)).hexdigest()[:16]}.sock")


def _user_folder(env: Mapping[str, str]) -> str:
    if home := env.get("HOME"):
        return home
    expanded = os.path.expanduser("~")  # falls back to the password database
    return "" if expanded == "~" else expanded


def _absolute(chosen: str) -> str:
    """Raises ValueError if `~` cannot be expanded: it would become a folder of that name."""
    expanded = os.path.expanduser(chosen)
    if expanded.startswith("~"):
        raise ValueError(f"{chosen}: cannot expand ~ (set HOME or use an absolute path)")
    return os.path.abspath(expanded)


def _path(text: str) -> Path:
    from pathlib import Path  # noqa: PLC0415 - see above

    return Path(text)
