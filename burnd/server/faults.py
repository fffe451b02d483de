"""What each thing that goes wrong is called over the socket. A client never sees a traceback."""

from __future__ import annotations

from burnd import protocol
from burnd.contract.checking import BadParams
from burnd.errors import BurndError, IndexDamaged, NotNow
from burnd.index.asking import TookTooLong
from burnd.queries.view import Missing, Mistaken, NoSession, Refusal
from burnd.server.rpc import Fault


def fault_of(error: Exception) -> Fault | None:
    """An error in words for a client; None for what nobody foresaw."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, Refusal):
        about = "session" if isinstance(error, NoSession) else ""
        return Fault(_code_of(error), str(error), error.hint, about)
    if isinstance(error, BadParams):
        return Fault(protocol.BAD_PARAMS, str(error), error.hint)
    if isinstance(error, TimeoutError | TookTooLong):
        return Fault(
            protocol.TOO_LONG, "it took too long and was stopped", "ask for less, or try again when it is quiet"
        )
    if isinstance(error, OverflowError):
        return Fault(protocol.BAD_PARAMS, "a number is larger than anything there is")
    if isinstance(error, IndexDamaged):
        return Fault(
            protocol.NOT_NOW, "the index is being made anew", "try again in a moment; status says how far it is"
        )
    if isinstance(error, BurndError):
        code = protocol.NOT_NOW if isinstance(error, NotNow) else protocol.FAILED
        return Fault(code, ": ".join(filter(None, (error.thing, error.what))), error.remedy)
    return None


def _code_of(refusal: Refusal) -> int:
    if isinstance(refusal, Missing):
        return protocol.NOT_FOUND
    return protocol.BAD_PARAMS if isinstance(refusal, Mistaken) else protocol.REFUSED


UNFORESEEN = Fault(protocol.FAILED, "burnd failed inside while answering", "its log names the place; please report it")
