"""burnd as a systemd user service: writes, enables, inspects and removes its units."""

from __future__ import annotations

import contextlib
import os
import shutil

from burnctl.daemon_process import log_setting
from burnctl.errors import NOT_RUNNING, BurnctlError
from burnctl.service import managers, units
from burnctl.service.managers import NoManager
from burnd.paths import home_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from typing import Any

    from burnctl.service.units import Settings

_DROP_INS = f"{units.SERVICE}.d"
# The units to enable, in order, then the files that belong to them.
_ENABLED = (units.SOCKET, units.SERVICE, units.PRICES_TIMER, units.PUSH)
_BESIDE = (units.PRICES, f"{_DROP_INS}/{units.HARDENING}", f"{_DROP_INS}/{units.WITH_SOCKET}")
_FACTS = "ActiveState,SubState,UnitFileState,MainPID,NRestarts,StatusText"


class Systemd:
    """The service of the user whose environment `env` is."""

    def __init__(
        self, env: Mapping[str, str], *, hardened: bool = False, socketed: bool = False, priced: bool = False
    ) -> None:
        self._parts = {"hardened": hardened, "socketed": socketed, "priced": priced}
        config = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
        self._folder = os.path.join(config, "systemd", "user")
        self._service = os.path.join(self._folder, units.SERVICE)
        self._every = [os.path.join(self._folder, name) for name in (*_ENABLED, *_BESIDE)]

    def files(self, settings: Settings) -> dict[str, str]:
        """The files of an installation: path to text. Raises BurnctlError for values that no unit can have."""
        if set(settings.command[0]) & set("\"'\\"):
            raise BurnctlError(f"systemd cannot start {settings.command[0]}: its path has quotes or backslashes")
        texts = units.files(settings, **self._parts)
        return {os.path.join(self._folder, name): text for name, text in texts.items()}

    def install(self, settings: Settings) -> list[str]:
        """Writes and starts everything; returns lines to print."""
        files = self.files(settings)
        _check_manager()
        managers.check_ours(self._every, units.MARK)
        managers.check_command(settings)
        managers.make_private(settings.home)
        lines = self._make_room()
        self._remove([path for path in self._every if path not in files])
        for path, text in files.items():
            managers.write(path, text)
        _must("daemon-reload")
        for name in _ENABLED:
            if os.path.join(self._folder, name) in files:
                _must("enable", "--now", name)
        lines += [f"wrote {path}" for path in files]
        lines.append("burnd is running and will be started at login")
        if not _lingers():
            lines.append("it ends when you log out; to keep it running: loginctl enable-linger")
        return lines

    def uninstall(self) -> list[str]:
        """Stops and removes everything; returns lines to print."""
        managers.check_ours(self._every, units.MARK)
        there = [path for path in self._every if os.path.exists(path)]
        if not there:
            return ["the service is not installed"]
        gone = self._remove(there)
        with contextlib.suppress(NoManager):
            _systemctl("daemon-reload")
        return [f"removed {path}" for path in gone]

    def state(self) -> dict[str, Any]:
        output = _systemctl("show", units.SERVICE, f"--property={_FACTS}").stdout
        facts = dict(line.partition("=")[::2] for line in output.splitlines())
        return {
            "manager": "systemd",
            "unit": self._service,
            "installed": os.path.exists(self._service),
            "enabled": facts.get("UnitFileState", "").startswith("enabled"),
            "running": facts.get("ActiveState") in ("active", "reloading"),
            "state": facts.get("SubState") or None,
            "pid": int(facts.get("MainPID") or 0) or None,
            "restarts": int(facts.get("NRestarts") or 0),
            "detail": facts.get("StatusText") or None,
        }

    def status(self) -> int:
        done = _systemctl("--no-pager", "status", units.SERVICE)
        if not done.stdout:
            _check_manager()
        print((done.stdout + done.stderr).rstrip())
        return NOT_RUNNING if done.returncode else 0

    def logs(self, lines: int, *, follow: bool) -> int:
        """Shows the journal of the service, or the log file of a burnd that writes one."""
        own_file = log_setting()
        if own_file or not os.path.exists(self._service) or shutil.which("journalctl") is None:
            path = os.path.join(home_folder(), own_file or "burnd.log")
            return managers.last_lines(path, lines, follow=follow)
        how = ["--follow"] if follow else ["--no-pager"]
        return managers.in_our_place(["journalctl", "--user", "-u", units.SERVICE, "-n", str(lines), *how])

    def _make_room(self) -> list[str]:
        """Stops a running burnd: its settings and socket are old."""
        if _systemctl("is-active", "--quiet", units.SERVICE).returncode == 0:
            _must("stop", units.SERVICE)
        elif (pid := managers.stop_one_started_by_hand()) is not None:
            return [f"stopped the burnd that was started by hand (pid {pid})"]
        return []

    def _remove(self, paths: list[str]) -> list[str]:
        """Disables our units and removes our files."""
        units_among = (name for name in _ENABLED if os.path.join(self._folder, name) in paths)
        there = [name for name in units_among if os.path.exists(os.path.join(self._folder, name))]
        if there:
            with contextlib.suppress(NoManager):  # then they do not run either
                _systemctl("disable", "--now", *there)
        return managers.remove(paths, units.MARK)


def _systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    return managers.call("systemctl", "--user", *words)


def _must(*words: str) -> None:
    managers.must("systemctl", "--user", *words)


def _check_manager() -> None:
    done = _systemctl("show-environment")
    if done.returncode:
        output = done.stderr.strip().splitlines()
        raise NoManager(f"your systemd user manager does not answer: {output[0] if output else done.returncode}")


def _lingers() -> bool:
    """Whether services go on after a logout."""
    import pwd

    try:
        return os.path.exists(f"/var/lib/systemd/linger/{pwd.getpwuid(os.getuid()).pw_name}")
    except KeyError:
        return False
