"""Checks requests against the table of methods. Errors name the parameter and what it may be."""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union

import msgspec

from burnd.contract import Param, Params
from burnd.harness.registry import source_of

P = TypeVar("P", bound=Params)
_SHOWN = 60
# msgspec's messages, and the path in them.
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_CHOICE = re.compile(r"Invalid enum value (.*?)(?: - at `.*)?$", re.DOTALL)
_BOUND = re.compile(r"Expected `(?:int|float)` (?:[<>]=? .*)")
_STEP = re.compile(r"\w+")
_PATH = re.compile(r" - at `\$([^`]*)`$")
_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}


class BadParams(ValueError):
    """Raised for wrong parameters; `hint` lists those of the method."""

    def __init__(self, what: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(what)


def decoded(method: type[P], raw: bytes | msgspec.Raw) -> P:
    """The parameters of a request. Raises BadParams."""
    if bytes(raw).lstrip()[:1] != b"{":
        raise BadParams("params must be an object", "give parameters by name")
    fields = parsed(raw, struct_of(method), method.params)
    values = {name: getattr(fields, name) for name in method.params}
    for name, one in method.params.items():
        if one.kind == "source" and values[name] is not None:
            values[name] = source_of(values[name])
    return method(**values)


def checked(method: type[P], given: Mapping[str, Any]) -> P:
    """The same for parameters that are not JSON yet."""
    return decoded(method, msgspec.json.encode(given))


_STRUCTS: dict[type[Params], type[msgspec.Struct]] = {}


def struct_of(method: type[Params]) -> type[msgspec.Struct]:
    """The struct that decodes a method's parameters."""
    if method in _STRUCTS:
        return _STRUCTS[method]
    own = {name: text for base in method.__mro__ for name, text in vars(base).get("__annotations__", {}).items()}
    module = vars(sys.modules[method.__module__])
    fields: list[Any] = []
    for name, one in method.params.items():
        type_ = _checked(one, eval(own[name], {**module, "Json": msgspec.Raw}))  # noqa: S307 - the table's own text
        fields.append((name, type_) if one.is_required else (name, type_, one.default))
    renamed = {name: one.wire for name, one in method.params.items()}
    struct = msgspec.defstruct(method.__name__, fields, rename=renamed, forbid_unknown_fields=True, kw_only=True)
    return _STRUCTS.setdefault(method, struct)


def _checked(one: Param, hint: Any) -> Any:
    """The type of a parameter for msgspec, with its choices and bounds; nested parameters are structs."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, UnionType):
        return Union[tuple(_checked(one, part) for part in inner)]  # noqa: UP007 - of a tuple
    if origin is list:
        return list[_checked(one, inner[0])]  # type: ignore[misc]
    if isinstance(hint, type) and issubclass(hint, Params):
        return struct_of(hint)
    if hint is str and one.choices and not one.others and one.kind != "source":
        return Literal[one.choices]
    if hint in (int, float) and not one.clamped and (one.least is not None or one.most is not None):
        return Annotated[hint, msgspec.Meta(ge=one.least, le=one.most)]
    return hint


def parsed(raw: bytes | msgspec.Raw, type_: Any, params: dict[str, Param], prefix: str = "") -> Any:
    """A JSON text as a type. Raises BadParams with a path from `prefix` on."""
    try:
        return msgspec.json.decode(raw, type=type_)
    except RecursionError:
        raise BadParams(f"{prefix or 'params'} is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _explained(str(error), type_, params, prefix) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadParams(f"{prefix or 'params'}: {str(error)[:200]}") from None


def _explained(reason: str, type_: Any, params: dict[str, Param], prefix: str) -> BadParams:
    """msgspec's message in our words."""
    at = _PATH.search(reason)
    path = (prefix + (at[1] if at else "")).lstrip(".")
    inner = path.removeprefix(prefix)
    names = [field.encode_name for struct in _at(type_, inner, msgspec.inspect.StructType) for field in struct.fields]
    if match := _UNKNOWN.match(reason):
        name = match[1].partition("` - at `")[0][:_SHOWN]
        close = get_close_matches(name, names, 1)
        hint = f"did you mean: {close[0]}" if close else _takes(names)
        return BadParams(f"unknown parameter {name!r}{f' in {path}' if path else ''}", hint)
    if match := _MISSING.match(reason):
        return BadParams(f"{f'{path}.' if path else ''}{match[1]} is missing", _takes(names))
    one = next((p for p in params.values() if p.wire == path), None)
    if match := _CHOICE.match(reason):
        literals = _at(type_, inner, msgspec.inspect.LiteralType)
        choices = one.choices if one else tuple(str(word) for literal in literals for word in literal.values)
        last = path.rpartition(".")[2]
        close = get_close_matches(match[1].strip("'"), choices, 1)
        hint = f"did you mean: {close[0]}" if close else f"{last} is one of: {', '.join(choices)}"
        return BadParams(f"{path} cannot be {match[1][:_SHOWN]}", hint)
    if _BOUND.match(reason) and one is not None:
        bounds = f"{one.least:g} or more" if one.most is None else f"from {one.least or 0:g} to {one.most:g}"
        return BadParams(f"{path} must be {f'at most {one.most:g}' if one.least is None else bounds}")
    if match := _TYPE.match(reason):
        types = " or ".join(_WORDS.get(name, name) for name in match[1].split(" | ") if name != "null")
        return BadParams(f"{path or 'params'} must be {types}, not {_WORDS.get(match[2], match[2])}")
    return BadParams(f"{path or 'params'}: {reason[:200]}")


def _takes(names: list[str]) -> str:
    return f"it takes: {', '.join(names)}" if names else "it takes none"


def _at(type_: Any, path: str, kind: Callable[..., Any]) -> list[Any]:
    """The types of a kind that the value at a path may have."""
    types: list[Any] = [msgspec.inspect.type_info(type_)]
    for name in _STEP.findall(path):
        structs = [one for one in _alternatives(types) if isinstance(one, msgspec.inspect.StructType)]
        types = [field.type for struct in structs for field in struct.fields if field.encode_name == name] or types
    return [one for one in _alternatives(types) if isinstance(one, kind)]  # type: ignore[arg-type]


def _alternatives(types: list[Any]) -> Iterator[Any]:
    for one in types:
        if isinstance(one, msgspec.inspect.UnionType):
            yield from _alternatives(list(one.types))
        elif isinstance(one, msgspec.inspect.ListType):
            yield from _alternatives([one.item_type])
        else:
            yield one
