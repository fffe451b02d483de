"""Where things are: the home, what is in it, and where the socket goes. Standard library only.

burnctl imports this at every start, so nothing here may be slow to import.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SOCKET_PATH_LIMIT = 100  # bytes; the kernel refuses at 104 (macOS) or 108 (Linux)


class Home:
    """The folder that holds everything burnd keeps, and the names inside it."""

    __slots__ = ("root",)

    def __init__(self, root: Path) -> None:
        self.root = root

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
    def crossings(self) -> Path:
        return self.root / "budgets-crossed.json"

    @property
    def lock(self) -> Path:
        return self.root / "burnd.lock"

    @property
    def log(self) -> Path:
        return self.root / "burnd.log"


def find_home(env: Mapping[str, str] = os.environ) -> Home:
    """`$RELAYBURN_HOME`, else `~/.relayburn`. Raises ValueError when neither can be told."""
    return Home(_path(home_folder(env)))


def user_home(env: Mapping[str, str] = os.environ) -> Path:
    """The person's own folder; `HOME` as given wins over the password database. Who has none, as in some containers,
    has the root, where nothing will be found: what variables name is read all the same."""
    return _path(_user_folder(env) or "/")


def socket_path(home: Home, env: Mapping[str, str] = os.environ) -> Path:
    """Where the daemon listens. Raises ValueError when no short enough path can be found."""
    return _path(socket_file(str(home.root), env))


# The same as strings: burnctl asks for the socket at every start, and pathlib alone takes longer to import than
# the daemon takes to answer.


def home_folder(env: Mapping[str, str] = os.environ) -> str:
    if chosen := env.get("RELAYBURN_HOME"):
        return _absolute(chosen)
    if not (folder := _user_folder(env)):
        raise ValueError("no home folder: set HOME or RELAYBURN_HOME")
    return os.path.join(folder, ".relayburn")


def socket_file(home: str, env: Mapping[str, str] = os.environ) -> str:
    if chosen := env.get("BURND_SOCKET"):
        return _absolute(chosen)
    usual = os.path.join(home, "burnd.sock")
    if len(os.fsencode(usual)) <= SOCKET_PATH_LIMIT:
        return usual
    runtime = env.get("XDG_RUNTIME_DIR")
    if not runtime:
        raise ValueError(f"{usual} is too long for a socket: set XDG_RUNTIME_DIR, BURND_SOCKET or a shorter home")
    from hashlib import sha256  # noqa: PLC0415 - hardly ever needed

    return os.path.join(runtime, f"burnd-{sha256(os.fsencode(home)).hexdigest()[:16]}.sock")


def _user_folder(env: Mapping[str, str]) -> str:
    if given := env.get("HOME"):
        return given
    expanded = os.path.expanduser("~")  # falls back to the password database
    return "" if expanded == "~" else expanded


def _absolute(chosen: str) -> str:
    """A path that a person gave. A `~` that stands for nothing would become a folder of that name."""
    expanded = os.path.expanduser(chosen)
    if expanded.startswith("~"):
        raise ValueError(f"{chosen}: nobody knows which folder ~ is: set HOME, or say the whole path")
    return os.path.abspath(expanded)


def _path(text: str) -> Path:
    from pathlib import Path  # noqa: PLC0415 - see above

    return Path(text)
