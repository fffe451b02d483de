"""burnctl: the small client that asks burnd what was spent, why, and where to save.

    from burnctl import Client

    Client().stamp(session="0f9c...", workflowId="wf-1")

The names below are found when they are first used, so that importing the package costs nothing.
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
