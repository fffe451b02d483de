"""Where things are: the home, what is in it, and where the socket goes. Standard library only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOCKET_PATH_LIMIT = 100  # bytes; the kernel refuses at 104 (macOS) or 108 (Linux)


@dataclass(frozen=True)
class Home:
    """The folder that holds everything burnd keeps, and the names inside it."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def older_config(self) -> Path:
        return self.root / "config.json"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.jsonl"

    @property
    def content(self) -> Path:
        return self.root / "content"

    @property
    def blobs(self) -> Path:
        return self.content / "blobs.db"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def index_db(self) -> Path:
        return self.index / "burn.db"

    @property
    def search(self) -> Path:
        return self.index / "search"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def prices(self) -> Path:
        return self.root / "models.dev.json"

    @property
    def lock(self) -> Path:
        return self.root / "burnd.lock"

    @property
    def log(self) -> Path:
        return self.root / "burnd.log"


def find_home(env: Mapping[str, str] = os.environ) -> Home:
    """`$RELAYBURN_HOME`, else `~/.relayburn`. Raises ValueError when neither can be told."""
    chosen = env.get("RELAYBURN_HOME")
    if chosen:
        return Home(Path(chosen).expanduser().absolute())
    return Home(user_home(env) / ".relayburn")


def user_home(env: Mapping[str, str] = os.environ) -> Path:
    """The person's own folder; `HOME` as given wins over the password database."""
    given = env.get("HOME")
    if given:
        return Path(given)
    expanded = os.path.expanduser("~")  # falls back to the password database
    if expanded == "~":
        raise ValueError("no home folder: set HOME or RELAYBURN_HOME")
    return Path(expanded)


def socket_path(home: Home, env: Mapping[str, str] = os.environ) -> Path:
    """Where the daemon listens. Raises ValueError when no short enough path can be found."""
    if chosen := env.get("BURND_SOCKET"):
        return Path(chosen)
    usual = home.root / "burnd.sock"
    if len(os.fsencode(usual)) <= SOCKET_PATH_LIMIT:
        return usual
    runtime = env.get("XDG_RUNTIME_DIR")
    if not runtime:
        raise ValueError(f"{usual} is too long for a socket: set XDG_RUNTIME_DIR, BURND_SOCKET or a shorter home")
    name = hashlib.sha256(os.fsencode(home.root)).hexdigest()[:16]
    return Path(runtime) / f"burnd-{name}.sock"
