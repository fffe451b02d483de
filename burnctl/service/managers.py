"""Shared parts of systemd and launchd: calling programs, and files that only their writer may replace or remove."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from burnctl.errors import BurnctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from burnctl.service.launchd import Launchd
    from burnctl.service.systemd import Systemd
    from burnctl.service.units import Settings


def of_this_system(name: str | None = None, **parts: bool) -> Systemd | Launchd:
    """The service manager of this name, else of this system; `parts` are what it installs in addition."""
    if (name or ("launchd" if sys.platform == "darwin" else "systemd")) == "launchd":
        from burnctl.service.launchd import Launchd

        return Launchd(os.environ, **parts)
    from burnctl.service.systemd import Systemd

    return Systemd(os.environ, **parts)


class NoManager(BurnctlError):
    def __init__(self, message: str) -> None:
        super().__init__(
            message, "start it yourself: `burnctl up`, in a shell profile, or `@reboot burnctl up` in cron"
        )


def call(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a manager's program and returns its output. Raises NoManager if it is not installed."""
    try:
        return subprocess.run([program, *arguments], capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        raise NoManager(f"{program} is not here") from None


def must(program: str, *arguments: str) -> None:
    """Runs it, and raises BurnctlError with its own words if it fails."""
    done = call(program, *arguments)
    if done.returncode:
        output = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise BurnctlError(f"{program} {' '.join(arguments)}: {output}", "see: burnctl service logs")


def check_command(settings: Settings) -> None:
    """Checks that the service can be started, by asking the command for its version."""
    *command, _run = settings.command
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, cwd="/")
        output = done.stderr.strip().splitlines() if done.returncode else None
    except OSError as error:
        output = [str(error.strerror)]
    if output is not None:
        raise BurnctlError(
            f"{command[0]} cannot start burnd: {output[-1] if output else 'it does not say why'}",
            "install burnd (`pipx install .` in a clone of it), and use the burnctl that comes with it",
        )


def is_ours(path: str, mark: str) -> bool | None:
    """Whether burnctl wrote the file; None if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return mark in file.read(4096)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BurnctlError(f"{path}: {error.strerror}") from None


def check_ours(paths: Iterable[str], mark: str) -> None:
    for path in paths:
        if is_ours(path, mark) is False:
            raise BurnctlError(f"{path} exists, and burnctl did not write it", "move it away, or keep using it")


def write(path: str, text: str, mode: int | None = None) -> None:
    """Writes a whole file or changes nothing. Without a `mode`, the umask decides."""
    beside = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        private = None if mode is None else lambda name, flags: os.open(name, flags, 0o600)
        with open(beside, "w", encoding="utf-8", opener=private) as file:
            file.write(text)
        if mode is not None:
            os.chmod(beside, mode)
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise BurnctlError(f"{path} cannot be written: {error.strerror}") from None


def remove(paths: Iterable[str], mark: str) -> list[str]:
    gone = []
    for path in paths:
        if is_ours(path, mark):
            os.unlink(path)
            gone.append(path)
            with contextlib.suppress(OSError):  # not empty: it has other files
                if path.endswith(".conf"):
                    os.rmdir(os.path.dirname(path))
    return gone


def make_private(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise BurnctlError(f"{folder} cannot be made: {error.strerror}") from None


def stop_one_started_by_hand() -> int | None:
    """Stops a burnd that runs without the service, so that the service can start; returns its pid."""
    from burnctl.client import Client
    from burnctl.daemon import stop
    from burnctl.errors import NotRunning

    try:
        return stop(Client())
    except NotRunning:
        return None


def last_lines(path: str, lines: int, *, follow: bool) -> int:
    """Shows the end of a log file with `tail`."""
    if not os.path.exists(path):
        raise BurnctlError(f"{path}: there is no log yet")
    words = ["tail", "-n", str(lines), *(["-F"] if follow else []), path]
    return in_our_place(words)


def in_our_place(words: list[str]) -> int:
    """Replaces this process by another program; returns only if that fails."""
    try:
        os.execvp(words[0], words)  # noqa: S606 - a list of words, no shell
    except OSError as error:
        raise BurnctlError(f"{words[0]} cannot be run: {error.strerror}") from None
