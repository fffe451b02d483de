"""No text from a log, a repository or a client costs more than linear time.

Every regular expression is tried with texts made to slow it down, and so is every function that takes such text apart.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import burnctl
import burnd
from burnctl.render import text as rendering
from burnd.classify import keywords, shell
from burnd.content import recall
from burnd.harness import instructions, tool_calls
from burnd.harness.claude_code import prompts as claude_prompts
from burnd.harness.claude_code.reader import ClaudeReader
from burnd.harness.codex import reader as codex_reader
from burnd.harness.codex import tools as codex_tools
from burnd.harness.codex.reader import CodexReader
from burnd.harness.codex.rollout import RolloutName
from burnd.pricing import names
from burnd.queries import quotes
from burnd.recording.projects import git_settings
from burnd.records import foreign_json
from burnd.records.names import canonical_remote
from burnd.search import passages, query
from burnd.tokens import words
from tests.adversarial import FILLERS, SHORT, is_linear, repeated, texts_for
from tests.harness.claude_code.transcript import Transcript
from tests.harness.codex.rollout import Rollout, call, patch
from tests.harness.collect import PATH

_METHODS: dict[str, Callable[[re.Pattern[Any], Any], object]] = {
    "match": lambda pattern, text: pattern.match(text),
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "search": lambda pattern, text: pattern.search(text),
    "finditer": lambda pattern, text: sum(1 for _ in pattern.finditer(text)),
}
_LIKE_FINDITER = ("sub", "subn", "findall", "split")
# Made while burnd runs, from text or from tables; tried below by what makes them.
_MADE = {
    ("burnd.lost_logs", "_changes"),  # of whole ids, which `burnd.queries.names` has at its top
    ("burnd.search.passages", "_phrase"),
    ("burnd.search.passages", "_odd_pieces"),
    ("burnd.tokens.words", "_mark_rows"),
}


def _sources() -> dict[str, str]:
    """The text of every module that uses regular expressions."""
    found = {}
    for package in (burnd, burnctl):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            path = Path(package.__path__[0]).parent.joinpath(*module.name.split("."))
            text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
            assert "configparser" not in text, f"{module.name}: its expressions take quadratic time"
            if "import re\n" in text:
                found[module.name] = text
            assert "from re import" not in text, f"{module.name}: import re instead"
    return found


_SOURCES = _sources()


def _calls_of_re(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a function of `re`, and the function it is in; an empty name at the top of a module."""
    for top in tree.body:
        nodes = list(ast.walk(top))
        calls = [node for node in nodes if isinstance(node, ast.Call) and _is_of_re(node.func)]
        if calls:
            functions = [one for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            inside = {id(node): one.name for one in functions for node in ast.walk(one)}
            yield from ((inside.get(id(call), ""), call) for call in calls)


def _is_of_re(function: ast.expr) -> bool:
    is_of_name = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
    return is_of_name and function.value.id == "re" and function.attr != "escape"  # type: ignore[attr-defined]


def _patterns(name: str) -> dict[str, tuple[re.Pattern[Any], set[str]]]:
    """Every pattern of a module, with the ways in which it is used there; all ways where that cannot be seen."""
    found = {}
    tree, names = ast.parse(_SOURCES[name]), vars(importlib.import_module(name))
    uses: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            uses.setdefault(node.value.id, set()).add("finditer" if node.attr in _LIKE_FINDITER else node.attr)
    for variable, value in names.items():
        if isinstance(value, re.Pattern):
            found[variable] = (value, uses.get(variable, set()) & set(_METHODS) or set(_METHODS))
    for _, node in _calls_of_re(tree):
        if node.func.attr != "compile" and isinstance(node.args[0], ast.Name):  # type: ignore[attr-defined]
            found[node.args[0].id] = (re.compile(names[node.args[0].id]), {"finditer"})
    return found


def test_every_pattern_has_a_name() -> None:
    """A pattern within a function would escape the test below."""
    for name, source in _SOURCES.items():
        for function, node in _calls_of_re(ast.parse(source)):
            is_named = isinstance(node.args[0], ast.Name)
            is_listed = {(name, function)} <= _MADE
            is_at_top = not function and node.func.attr == "compile"  # type: ignore[attr-defined]
            assert is_named or is_listed or is_at_top, (
                f"{name}:{node.lineno}: name this pattern at the top of the module"
            )
    assert sum(len(_patterns(name)) for name in _SOURCES) > 80


@pytest.mark.parametrize("name", _SOURCES)
def test_patterns_take_linear_time(name: str) -> None:
    for variable, (pattern, methods) in _patterns(name).items():
        _probe(variable, pattern, methods)


def _probe(variable: str, pattern: re.Pattern[Any], methods: set[str]) -> None:
    is_text = isinstance(pattern.pattern, str)
    for method in methods:
        for before, pump in texts_for(pattern):
            for behind in ("", "\0", "\n>"):

                def work(text: str, method: str = method) -> object:
                    return _METHODS[method](pattern, text if is_text else text.encode("utf-8", "replace"))

                what = f"{variable}.{method} of {before!r} + {pump!r} * n + {behind!r}"
                assert is_linear(work, repeated(pump, before, behind), SHORT), what


def _codex(text: str) -> None:
    rollout = Rollout(cwd=text)
    rollout.task(text[:1000])
    rollout.prompt(text)
    rollout.given(f"<environment_context>{text}")
    rollout.item(call("c1", "shell", command=["bash", "-lc", text]), call("c2", "exec_command", cmd=text))
    rollout.item(patch("c3", text), {"type": "custom_tool_call", "call_id": "c4", "name": "exec", "input": text})
    rollout.item({"type": "web_search_call", "action": {"type": "open_page", "url": text}})
    rollout.answer("c1", text)
    rollout.meter(10, 0, 5, 0)
    reader = CodexReader(RolloutName("s"))
    for number, line in enumerate(rollout.lines):
        reader.feed(line, number)
    reader.flush()
    reader.take()


def _claude(text: str) -> None:
    log = Transcript(gitBranch=text)
    log.prompt(text)
    log.prompt(f"<task-notification>{text}")
    log.calls(
        "m1",
        {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": text}},
        {"type": "tool_use", "id": "c2", "name": "Edit", "input": {"file_path": text, "old_string": text}},
        {"type": "tool_use", "id": "c3", "name": "WebFetch", "input": {"url": text}},
    )
    log.result("c1", text, is_error=True)
    log.attach("queued_command", prompt=text)
    reader = ClaudeReader(PATH)
    for number, line in enumerate(log.lines):
        reader.feed(line, number)
    reader.flush()
    reader.take()


def _passage(text: str) -> None:
    spotter = passages.Spotter(["a", "resolve"], ["a b", "a a a a a b", "fix the", "< \u5b57"])
    passages.passage(text, spotter.spots(text))
    spotter.has_phrases(text)


_FUNCTIONS: dict[str, Callable[[str], object]] = {
    "a Codex log": _codex,
    "a Claude Code log": _claude,
    "shell command": shell.read,
    "words of a prompt": keywords.prompt_words,
    "prompt without elements": keywords.person_text,
    "harness text of Codex": codex_reader.is_harness_text,
    "folder in a Codex log": lambda text: codex_reader.folder_in(f"<environment_context>{text}"),
    "files of a patch": tool_calls.patched_files,
    "hash of a patch": lambda text: tool_calls.patch_hash("file", text),
    "host": tool_calls.host_of,
    "host of an address": lambda text: tool_calls.host_of(f"https://{text}"),
    "command in a program": codex_tools.command_in,
    "failure": codex_tools._is_failure,
    "notified agent": claude_prompts._notification,
    "named agent": lambda text: claude_prompts._AGENT_ID.findall(text.encode()),
    "JSON": lambda text: foreign_json.plain(text.encode()),
    "JSON that is cut": lambda text: recall.closed(text.encode()),
    "depth of JSON": lambda text: foreign_json.depth(text.encode()),
    "line of the wrong shape": lambda text: foreign_json._drop({}, f"Invalid enum value '{text}' - at `$.a`"),
    "git config": lambda text: list(git_settings(text)),
    "section of a git config": lambda text: list(git_settings(f'[remote "{text}')),
    "value in a git config": lambda text: list(git_settings(f'[remote "origin"]\nurl = {text}')),
    "remote": canonical_remote,
    "model": lambda text: names.parse(text, ()),
    "title": quotes._HARNESS_TAGS.match,
    "command as a title": quotes._command,
    "first line": quotes._first_line,
    "search terms": words.spelled_out,
    "query": query.typed,
    "phrase": lambda text: passages.Spotter([], [text[:1000]]),
    "passage": _passage,
    "folded text": passages.folded,
    "text on a terminal": lambda text: rendering.cut(rendering.clean(text), 80),
    "imports of an instruction file": lambda text: list(instructions.imports(text.encode())),
    "sections of an instruction file": lambda text: list(instructions.sections(text.encode())),
}


@pytest.mark.parametrize("what", _FUNCTIONS)
def test_parsers_take_linear_time(what: str) -> None:
    work = _FUNCTIONS[what]
    for filler in FILLERS:
        assert is_linear(work, repeated(filler, filler[:1], "\0")), f"{filler!r} * n"


def test_a_probe_tells_quadratic_from_linear() -> None:
    """An expression that was in use, and froze the daemon for seconds."""
    slow = re.compile(r"<cwd>(.*?)</cwd>|^Current working directory: (.*)$", re.MULTILINE)
    assert any(pump.startswith("<cwd>") for _, pump in texts_for(slow))
    assert not is_linear(slow.search, repeated("<cwd>"), SHORT)
