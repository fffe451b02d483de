"""JSON with C functions of CPython: the package `json` imports `re`, which takes longer than all of burnctl."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_native: Any
try:
    import _json as _native
except ImportError:  # another Python
    _native = None

_SPACE = " \t\n\r"


def dumps(value: Any) -> str:
    """The value in one line of ASCII, as `json.dumps` writes it."""
    if _native is None:
        import json

        return json.dumps(value)
    quoted = _native.encode_basestring_ascii
    encode = _native.make_encoder(None, _refuse, quoted, None, ": ", ", ", False, False, True)
    return "".join(encode(value, 0))


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def loads(text: bytes | str, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The value of a JSON text. Raises ValueError."""
    if _native is None:
        import json

        return json.loads(text, object_hook=object_hook)
    plain = (text.decode("utf-8") if isinstance(text, bytes) else text).strip(_SPACE)
    try:
        value, end = _native.make_scanner(_ScannerSettings(object_hook))(plain, 0)
    except StopIteration:
        raise ValueError("the text is not JSON") from None
    if end != len(plain):
        raise ValueError("there is more text after the JSON value")
    return value


class _ScannerSettings:
    """The settings of `json.loads`."""

    strict = True
    object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int

    def __init__(self, object_hook: Callable[[dict[str, Any]], Any] | None) -> None:
        self.object_hook = object_hook
