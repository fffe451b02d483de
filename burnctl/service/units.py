"""Variables and command of the service, and the text of the systemd user units, from which `systemd/` is made. Pure."""

from __future__ import annotations

import os

from burnctl.errors import BurnctlError
from burnd.harness.registry import PRODUCTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


_OF_PRODUCTS = {variable.name: variable for product in PRODUCTS for variable in product.variables}
# Everything burnd reads from the environment; a test compares this with its settings.
VARIABLES = (
    "RELAYBURN_HOME",
    "RELAYBURN_CONTENT_STORE",
    "RELAYBURN_CONTENT_TTL_DAYS",
    "BURND_SOCKET",
    *_OF_PRODUCTS,
)
# How a push reaches a bucket or database. Secrets are in files, never in a unit.
PUSH_VARIABLES = (
    *("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "SSL_CERT_FILE", "BURND_PUSH_USER"),
)
_PATHS = {"RELAYBURN_HOME", "BURND_SOCKET", *(name for name, variable in _OF_PRODUCTS.items() if variable.is_path)}


class Settings:
    """The variables, the command, and the two places that a hardened service must write to.

    `push` are the arguments of `burnctl push` for a second service, `push_variables` its variables.
    """

    __slots__ = ("command", "home", "push", "push_variables", "socket", "variables")

    def __init__(
        self,
        variables: Mapping[str, str],
        command: Sequence[str],
        home: str,
        socket: str,
        push: Sequence[str] = (),
        push_variables: Mapping[str, str] = {},
    ) -> None:
        self.variables, self.command, self.home, self.socket = dict(variables), list(command), home, socket
        self.push, self.push_variables = list(push), dict(push_variables)


def command_of(python: str) -> list[str]:
    """Starts burnd with this interpreter, never with code from the working folder."""
    return [python, "-P", "-m", "burnd", "run"]


def variables_in(env: Mapping[str, str], working_folder: str) -> dict[str, str]:
    """Our variables that are set, folders made absolute. Raises BurnctlError for values that a unit cannot have."""
    variables = wherever(env, working_folder)
    for name, value in variables.items():
        if not value.isprintable():
            raise BurnctlError(f"{name} has characters that a service file cannot contain: {value!r}")
    return variables


def wherever(env: Mapping[str, str], working_folder: str) -> dict[str, str]:
    """Our variables that are set, valid in any working folder."""
    values = {name: value for name in VARIABLES if (value := env.get(name))}
    return {name: _absolute(value, env, working_folder) if name in _PATHS else value for name, value in values.items()}


def _absolute(path: str, env: Mapping[str, str], working_folder: str) -> str:
    home = env.get("HOME", "")
    expanded = home + path[1:] if home and (path == "~" or path.startswith("~/")) else path
    return os.path.normpath(os.path.join(working_folder, expanded))
