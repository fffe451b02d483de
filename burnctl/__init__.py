"""burnctl, the client of burnd: `from burnctl import Client`.

Names are imported at their first use, so that importing the package costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from burnctl.client import Client
    from burnctl.errors import BurnctlError, Failed, NotRunning, VersionMismatch

__all__ = ["Client", "BurnctlError", "Failed", "NotRunning", "VersionMismatch"]


def __getattr__(name: str) -> object:
    if name == "Client":
        from burnctl.client import Client

        return Client
    if name in __all__:
        from burnctl import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'burnctl' has no attribute {name!r}")
