"""`burnd check`: prints what would keep the daemon from working."""

from __future__ import annotations

import importlib.util
import os
import stat
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from burnd.errors import BurndError
from burnd.harness.registry import PRODUCTS
from burnd.ledger.files import free_bytes, prepare_home
from burnd.ledger.sidecars import Sidecars
from burnd.paths import Home, socket_path, user_home
from burnd.pricing import PriceFileError, PriceTable
from burnd.recording.stores import reserve_of
from burnd.server.listener import check_folder
from burnd.settings import config
from burnd.settings.config import Settings

_WATCH_LIMIT = Path("/proc/sys/fs/inotify/max_user_watches")
_MOST_FOLDERS = 200_000
_TAIL = 4096


class CheckResult(NamedTuple):
    level: Literal["ok", "warning", "error"]
    text: str


def check(home: Home, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """An error keeps the daemon from starting or recording."""
    try:
        settings = config.load(home, environ)
        warnings = prepare_home(home.root)
    except BurndError as error:
        yield CheckResult("error", str(error))
        return
    yield from (CheckResult("warning", warning) for warning in warnings)
    for results in (
        _socket(home, environ),
        _storage(home, settings),
        _prices(home),
        _privacy(home),
        _content(home),
        _sources(settings, environ),
    ):
        try:
            yield from results
        except (BurndError, OSError, ValueError) as error:
            yield CheckResult("error", str(error))
    if importlib.util.find_spec("tantivy") is None:
        yield CheckResult("warning", "search: tantivy is not installed; everything except search works")


def _socket(home: Home, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    path = Path(socket_path(home, environ))
    check_folder(path)
    if path.is_symlink() or (path.exists() and not path.is_socket()):
        yield CheckResult("error", f"{path}: exists and is not a socket (move it away)")
    else:
        yield CheckResult("ok", f"socket {path}")


def _storage(home: Home, settings: Settings) -> Iterator[CheckResult]:
    file = settings.values["log.file"]
    folder = (home.root / file).parent
    if file and not os.access(folder, os.W_OK):
        yield CheckResult("error", f"log.file: {folder} is not writable")
    free, size = free_bytes(home.root)
    reserve = reserve_of(size, settings.reserve)
    if free < reserve:
        yield CheckResult("error", f"disk: {free:,} bytes free; recording needs {reserve:,} (free some space)")
    else:
        yield CheckResult("ok", f"disk: {free // 1_000_000:,} MB free")


def _prices(home: Home) -> Iterator[CheckResult]:
    if not home.prices.exists():
        return
    try:
        PriceTable.load(str(home.prices))
    except PriceFileError as error:
        yield CheckResult("error", str(error))
    else:
        yield CheckResult("ok", f"prices {home.prices}")


def _privacy(home: Home) -> Iterator[CheckResult]:
    for path in (home.config, home.ledger, home.content, home.blobs, home.index, home.spool):
        try:
            mode = stat.S_IMODE(os.lstat(path).st_mode)
        except FileNotFoundError:
            continue
        if mode & 0o077:
            yield CheckResult("warning", f"{path}: readable by other users (chmod go-rwx {path})")


def _content(home: Home) -> Iterator[CheckResult]:
    """Reads only the end of each: whole sidecars would take too long."""
    for sidecar in Sidecars(home.content).scan():
        try:
            fd = os.open(sidecar.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.pread(fd, _TAIL, max(0, sidecar.size - _TAIL))
            finally:
                os.close(fd)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            yield CheckResult("warning", f"{sidecar.path}: {why}; this conversation cannot be read")


def _sources(settings: Settings, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    home = str(user_home(environ))
    for product in PRODUCTS:
        name, places = product.source, product.logs(environ, home, settings.roots_of(product))
        present = [place for place in places if os.path.exists(place)]
        if not present:
            yield CheckResult("ok", f"{name}: not found (looked in {', '.join(places)})")
        for place in present:
            readable = os.access(place, os.R_OK)
            yield CheckResult("ok", f"{name}: {place}") if readable else CheckResult("error", f"{place}: not readable")
        yield from _watches(name, present)


def _watches(name: str, places: list[str]) -> Iterator[CheckResult]:
    """Without enough watches the daemon polls."""
    try:
        limit = int(_WATCH_LIMIT.read_text("ascii"))
    except (OSError, ValueError):
        return
    most = min(limit, _MOST_FOLDERS)
    folders = sum(1 for _ in islice((folder for place in places for folder in os.walk(place)), most))
    if folders >= limit:
        yield CheckResult(
            "warning",
            f"{name}: more folders than can be watched ({limit:,}), so they are polled "
            f"(raise fs.inotify.max_user_watches)",
        )
