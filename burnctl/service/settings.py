"""Variables and command of the service, which does not see a shell's variables. Pure."""

from __future__ import annotations

import os

from burnctl.errors import BurnctlError
from burnd.harness.registry import PRODUCTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
