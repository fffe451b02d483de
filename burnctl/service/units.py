"""The text of the systemd user units; `systemd/` is made from it. Pure."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from burnctl.service.settings import Settings

SERVICE, SOCKET, HARDENING, WITH_SOCKET = "burnd.service", "burnd.socket", "hardening.conf", "socket.conf"
PRICES, PRICES_TIMER = "burnd-prices.service", "burnd-prices.timer"
PUSH = "burnd-push.service"
MARK = "# Written by `burnctl service install`."
_NOTE = f"{MARK} To change something use `systemctl --user edit burnd`: the next\n# install overwrites this file.\n"


def service(settings: Settings, note: str = _NOTE) -> str:
    """The service, with what works in every user unit."""
    return f"""{note}
[Unit]
Description=burnd, which records what coding agents spend
Documentation=man:burnd(1)
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
ExecStart={_command(settings.command)}
{_environment(settings.variables)}Restart=on-failure
RestartSec=2
# Another burnd has the home: trying again would not help.
RestartPreventExitStatus=5
WatchdogSec=60
TimeoutStopSec=15
UMask=0077
# No core dump when the watchdog ends it: it would contain conversations.
LimitCORE=0

# It must never be in the way of the work it records.
Nice=10
IOSchedulingClass=idle
LimitNOFILE=4096
TasksMax=64
MemoryHigh=600M
MemoryMax=1G

# These need no user namespaces, so they hold on every kernel. The rest is in {HARDENING}.
NoNewPrivileges=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=default.target
"""


def hardening(settings: Settings, note: str = _NOTE) -> str:
    """Settings that need unprivileged user namespaces."""
    places = dict.fromkeys((settings.home, os.path.dirname(settings.socket)))
    private_tmp = "" if _needs_tmp(settings) else "PrivateTmp=yes\n"
    return f"""{note}
# These need unprivileged user namespaces: where the kernel forbids them the service does not start with this file.
# RestrictAddressFamilies and PrivateNetwork leave only unix sockets, so a hook that posts to the network is silent.
[Service]
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={" ".join(map(_quoted, places))}
{private_tmp}PrivateDevices=yes
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectClock=yes
ProtectHostname=yes
"""


def socket(settings: Settings, note: str = _NOTE) -> str:
    """A socket of systemd: clients wait while burnd starts."""
    return f"""{note}
[Unit]
Description=The socket of burnd
Documentation=man:burnd(1)

[Socket]
ListenStream={settings.socket.replace("%", "%%")}
SocketMode=0600
DirectoryMode=0700

[Install]
WantedBy=sockets.target
"""


def with_socket(note: str = _NOTE) -> str:
    """Binds the service to the socket unit, so that it never makes another socket."""
    return f"""{note}
[Unit]
Requires={SOCKET}
After={SOCKET}
"""


def prices(settings: Settings, note: str = _NOTE) -> str:
    """Fetches the newest prices."""
    return f"""{note}
[Unit]
Description=The newest prices for burnd
Documentation=man:burnctl(1)

[Service]
Type=oneshot
ExecStart={_command([settings.command[0], "-P", "-m", "burnctl", "pricing", "update"])}
{_environment(settings.variables)}UMask=0077
Nice=19
NoNewPrivileges=yes
"""


def prices_timer(note: str = _NOTE) -> str:
    """Weekly at a random time, and after a missed run."""
    return f"""{note}
[Unit]
Description=The newest prices for burnd, once a week

[Timer]
OnCalendar=weekly
RandomizedDelaySec=1d
Persistent=yes

[Install]
WantedBy=timers.target
"""


def push(settings: Settings, note: str = _NOTE) -> str:
    """Pushes to a target. It needs the network, which burnd itself does not."""
    return f"""{note}
[Unit]
Description=Sends what burnd recorded to a database or folder
Documentation=man:burnctl(1)
After={SERVICE}

[Service]
ExecStart={_command([settings.command[0], "-P", "-m", "burnctl", "push", "--no-start", "--watch", *settings.push])}
{_environment(settings.variables | settings.push_variables)}Restart=on-failure
RestartSec=300
UMask=0077
LimitCORE=0
Nice=19
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def files(settings: Settings, *, hardened: bool, socketed: bool, priced: bool) -> Mapping[str, str]:
    """Every file of an installation, by its path below the folder of user units."""
    files = {SERVICE: service(settings)}
    if hardened:
        files[f"{SERVICE}.d/{HARDENING}"] = hardening(settings)
    if socketed:
        files[SOCKET] = socket(settings)
        files[f"{SERVICE}.d/{WITH_SOCKET}"] = with_socket()
    if settings.push:
        files[PUSH] = push(settings)
    if priced:
        files |= {PRICES: prices(settings), PRICES_TIMER: prices_timer()}
    return files


def _needs_tmp(settings: Settings) -> bool:
    """Whether a private /tmp would hide something burnd needs."""
    places = (settings.home, settings.socket, *settings.variables.values())
    return any(place.startswith(("/tmp/", "/var/tmp/")) for place in places)  # noqa: S108 - theirs, not ours


def _command(words: Sequence[str]) -> str:
    """A command line. After the program `$` would begin a variable."""
    program, *arguments = words
    return " ".join([_quoted(program), *(_quoted(word.replace("$", "$$")) for word in arguments)])


def _environment(variables: Mapping[str, str]) -> str:
    return "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in variables.items())


def _quoted(word: str) -> str:
    """A word as systemd reads it back: quotes and backslashes escaped, `%` doubled."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    plain = all(letter.isalnum() or letter in "/._-=%:,+@" for letter in escaped)
    return escaped if plain and word else f'"{escaped}"'
