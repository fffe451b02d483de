"""The hashes of what an edit found and of what it left: the one that takes it back has them the other way round."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from burnd.harness.weights import short_hash

_OLD: Final = ("old_string", "oldString")
_NEW: Final = ("new_string", "newString")
Change = tuple[str, str]  # what was there, and what is there now


def edit_hash(target: str | None, given: dict[str, Any]) -> str | None:
    """Of arguments that name what to replace by what, once or several times."""
    several = given.get("edits")
    found = [_replaced(edit) for edit in (several if isinstance(several, list) else [given])]
    changes = [change for change in found if change is not None]
    return _hashed(target, changes) if len(changes) == len(found) else None


def patch_hash(target: str | None, patch: Any) -> str | None:
    """Of a patch in the form of `apply_patch`."""
    if not isinstance(patch, str):
        return None
    lines = patch.splitlines()
    before = [" " + line[1:] if line.startswith("-") else line for line in lines if not line.startswith("+")]
    after = [" " + line[1:] if line.startswith("+") else line for line in lines if not line.startswith("-")]
    return _hashed(target, [("\n".join(before), "\n".join(after))])


def _replaced(edit: Any) -> Change | None:
    if not isinstance(edit, dict):
        return None
    old, new = (next((edit[key] for key in keys if key in edit), None) for keys in (_OLD, _NEW))
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def _hashed(target: str | None, changes: list[Change]) -> str | None:
    """Both sides, their parts in one order for an edit and its reverse, which goes from the last part to the first."""
    back = [(new, old) for old, new in reversed(changes)]
    if target is None or changes == back:
        return None
    ordered = min(changes, back)
    sides = [_side(target, ordered), _side(target, [(new, old) for old, new in ordered])]
    return ">".join(sides if ordered is changes else reversed(sides))


def _side(target: str, changes: list[Change]) -> str:
    """What stands on the left. Nothing at all is nowhere in particular: it is known by what stands on the right."""
    return short_hash(msgspec.json.encode([target, [one or [other] for one, other in changes]]))
