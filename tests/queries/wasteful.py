"""A session with every kind of waste, and the same session under another name."""

from __future__ import annotations

from typing import Any

from tests.attribution.scenes import Scene, call, prompt, result, said
from tests.queries.asking import moved_to


def wasteful_session() -> Scene:
    """A file read three times, a command that fails four times, and all of it carried along."""
    scene = Scene()
    context = 20_000
    scene.turn(context, 60, entered=(prompt(),), made=(said("call", 100, "r0"),), tool_calls=(read("r0"),))
    for n in range(1, 3):
        context += 3_060
        made, calls = (said("call", 100, f"r{n}"),), (read(f"r{n}"),)
        scene.turn(context, 60, entered=(result(12_000, f"r{n - 1}"),), made=made, tool_calls=calls)
    before = "r2"
    for n in range(4):
        context += 3_060 if n == 0 else 160
        failing = call("Bash", "npm test", f"b{n}", args_hash="same", is_error=True)
        made = (said("call", 100, f"b{n}"),)
        scene.turn(context, 60, entered=(result(400, before),), made=made, tool_calls=(failing,))
        before = f"b{n}"
    for _ in range(14):
        context += 160
        scene.turn(context, 60, entered=(prompt(),), made=(said(),))
    return scene


def in_session(scene: Scene, session_id: str) -> list[Any]:
    """The same turns in another session."""
    return [moved_to(entry, f"{session_id}-", session_id=session_id) for entry in scene.entries]


def read(call_id: str) -> Any:
    return call("Read", "/code/a/app.py", call_id, args_hash="whole", result_hash="h")
