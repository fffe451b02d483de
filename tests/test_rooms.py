"""The import table: each package or module of burnd, here called a room, and the rooms that it may import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from burnd.harness.registry import BY_SOURCE

ROOT = Path(__file__).parents[1]
# Every room may import the leaves, which both programs use.
LEAVES = {"errors", "paths", "protocol", "contract", "memory", "__version__"}
# What each agent product is, without how its logs are read; its instruction files; how the demo writes a session of it.
PRODUCTS = re.compile(r"burnd\.harness\.(registry|(\w+\.)?(product|demo|instructions|restore))")
MAY_IMPORT = {
    "tasks": "",
    "records": "",
    "classify": "",
    "tokens": "records",
    "ledger": "records tokens",
    "pricing": "ledger",
    "settings": "records ledger",
    "index": "records ledger pricing",
    "content": "records ledger index",
    "recording": "records classify ledger pricing index tasks",
    "attribution": "records classify ledger pricing index recording",
    "search": "records tokens ledger index content recording",
    "logfiles": "records ledger index recording tasks",
    "harness": ("records classify ledger settings index content recording logfiles queries tasks"),
    "reclassify": "records classify ledger index content recording",
    "queries": "records tokens classify attribution ledger pricing index content search",
    "fleet": "records classify attribution pricing index queries",
    "instructions": "tokens recording search",
    "limits": "records ledger pricing index recording queries",
    "lost_logs": "records recording queries tasks",
    "clients": "records ledger index recording queries limits tasks",
    "totals": "records ledger pricing settings index logfiles recording harness",
    "server": (
        "records ledger pricing settings index content recording search attribution harness reclassify queries "
        "limits lost_logs clients instructions totals tasks"
    ),
    "daemon": "ledger pricing settings limits recording harness clients totals server tasks",
    "cli": "ledger settings daemon server totals",
    "__main__": "cli",
}
# The part of attribution that reads rails from the index and writes the sums of their causes.
ON_THE_INDEX = {
    f"burnd/attribution/{name}.py" for name in ("cause_keys", "explainer", "rail_entries", "saved_findings", "segments")
}
# Modules that reach outside the process.
OUTSIDE = {
    *("aiosqlite", "anyio", "asyncio", "io", "mmap", "multiprocessing", "os", "pathlib", "shutil", "signal"),
    *("socket", "sqlite3", "subprocess", "tempfile", "threading"),
}


@cache
def imports(folder: str) -> frozenset[tuple[str, str, str]]:
    """All imports below a folder, as (file, room, imported module)."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return frozenset((str(path.relative_to(ROOT)), room_of(path), name) for path in files for name in _imported(path))


def room_of(path: Path) -> str:
    """The name of the package below burnd or burnctl, or of the module if it is in none."""
    return path.relative_to(ROOT).with_suffix("").parts[1]


@cache
def _nodes(path: Path) -> list[ast.AST]:
    """All of the syntax tree of a module."""
    return list(ast.walk(ast.parse(path.read_bytes())))


def _imported(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module in ("burnd", "burnctl"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def within(room: str) -> set[str]:
    """The rooms that a room imports, without itself and the leaves."""
    names = {name for _, of, name in imports("burnd") if of == room and name.startswith("burnd.")}
    return {name.split(".")[1] for name in names if not PRODUCTS.fullmatch(name)} - LEAVES - {room}


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_what_the_table_lists(room: str) -> None:
    """No more, and no less, so that the table shows what is true."""
    assert within(room) == set(MAY_IMPORT[room].split())


def test_every_room_is_in_the_table() -> None:
    assert {room for _, room, _ in imports("burnd")} - LEAVES - {"__init__"} <= set(MAY_IMPORT)
    assert all(not within(leaf) for leaf in LEAVES)


def test_it_flows_one_way() -> None:
    """No room is above and below another: each comes after those it imports."""
    below: dict[str, set[str]] = {room: set(names.split()) for room, names in MAY_IMPORT.items()}
    while below:
        lowest = {room for room, names in below.items() if not names & below.keys()}
        assert lowest, f"these import each other: {', '.join(sorted(below))}"
        below = {room: names for room, names in below.items() if room not in lowest}


@pytest.mark.parametrize("room", ["records", "tokens", "classify", "attribution"])
def test_the_middle_is_pure(room: str) -> None:
    """Values in, values out: no file, socket, database, thread or process."""
    modules = [(path, name) for path, of, name in imports("burnd") if of == room and path not in ON_THE_INDEX]
    assert [(path, name) for path, name in modules if name.split(".")[0] in OUTSIDE] == []


def test_the_client_imports_the_contract_alone() -> None:
    """Nothing of the daemon, so that it starts fast and works like any other client. A report over many machines has no
    daemon, so its client computes it."""
    modules = {name for _, of, name in imports("burnctl") if name.startswith("burnd.") and of != "fleet_client"}
    of_fleet = {name for _, of, name in imports("burnctl") if name.startswith("burnd.") and of == "fleet_client"}
    assert {name.split(".")[1] for name in of_fleet} - LEAVES == {"fleet", "queries"}
    assert {name.split(".")[1] for name in modules if not PRODUCTS.fullmatch(name)} <= LEAVES
    assert {name for _, _, name in imports("burnd") if name.split(".")[0] == "burnctl"} == set()


def test_products_are_leaves() -> None:
    """burnctl imports them and starts at once: no module of the daemon, and of Python's only quick ones."""
    modules = {(path, name) for path, _, name in imports("burnd") if PRODUCTS.fullmatch(dotted(path))}
    imported = {(path, name) for path, name in modules if not PRODUCTS.fullmatch(name)}
    assert modules
    assert not any(name.startswith("burnd") for _, name in imported)
    quick = {"__future__", "collections.abc", "json", "os", "stat", "typing"}
    assert {name for path, name in imported if not path.endswith(("demo.py", "instructions.py", "restore.py"))} <= quick


def dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def test_only_a_harness_package_names_its_product() -> None:
    """No other module has the name of a source, but prices, which have providers of the same names, and the demo."""
    named = [
        (str(path.relative_to(ROOT)), node.value)
        for folder in ("burnd", "burnctl")
        for path in (ROOT / folder).rglob("*.py")
        if room_of(path) not in ("harness", "pricing") and path.name != "demo_machine.py"
        for node in _nodes(path)
        if isinstance(node, ast.Constant) and node.value in BY_SOURCE
    ]
    assert named == []


def test_no_other_room_imports_the_package_of_a_harness() -> None:
    """They know the registry at most; the contract lists the sources of sessions that programs push."""
    others = [(path, name) for path, room, name in imports("burnd") if room != "harness"]
    packages = {(path, name) for path, name in others if re.match(r"burnd\.harness\.\w+\.", name)}
    assert packages == {("burnd/contract/sessions.py", "burnd.harness.api.product")}


def test_no_test_imports_another() -> None:
    """Shared code is in builders: importing a test file would collect its tests and fixtures a second time."""
    importing = re.compile(
        r"^\s*(?:from|import) tests\.(?:\w+\.)*test_|^\s*from tests[\w.]* import .*\btest_", re.MULTILINE
    )
    files = (ROOT / "tests").rglob("*.py")
    assert [str(path) for path in files if importing.search(path.read_text())] == []


# Folders of tests that are about several packages.
ACROSS = {"bench", "burnctl", "capture", "faults", "packaging", "real"}


def test_tests_mirror_the_tree() -> None:
    """A folder of tests has the name of a package; a file has that of a module, or opens with what it tests."""
    tests = ROOT / "tests"
    packages = {path.parent.name for path in (ROOT / "burnd").glob("*/__init__.py")}
    assert {path.parent.name for path in tests.glob("*/test_*.py")} <= packages | ACROSS
    modules = {path.stem for top in ("burnd", "burnctl") for path in (ROOT / top).rglob("*.py")}
    others = [path for path in tests.rglob("test_*.py") if path.stem.removeprefix("test_") not in modules]
    assert [str(path) for path in others if ast.get_docstring(ast.parse(path.read_bytes())) is None] == []


def test_queries_only_read() -> None:
    """No statement of theirs writes."""
    writes = re.compile(r"\b(INSERT (OR \w+ )?INTO|UPDATE \w+ SET|DELETE FROM|REPLACE INTO|CREATE|DROP) ")
    found = [
        (path.name, node.value)
        for path in (ROOT / "burnd" / "queries").glob("*.py")
        for node in _nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and writes.search(node.value)
    ]
    assert found == []
