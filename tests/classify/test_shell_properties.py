"""Properties of every command, real or not."""

from __future__ import annotations

import re
import time

from hypothesis import example, given
from hypothesis import strategies as st

from burnd.classify.shell import COMMAND_LIMIT, UNREADABLE, WRAPPERS, read
from burnd.classify.shell_programs import FLAGGED, RUNNERS, SUBCOMMANDS
from burnd.classify.shell_syntax import simple_commands
from tests.classify.families import EACH, FAMILIES, VERB_WORDS

LISTED = [command for _, command in EACH]
PROGRAMS = sorted({word.split()[0] for word in (*LISTED, *SUBCOMMANDS, *WRAPPERS, *FLAGGED)} | set(RUNNERS))
WORDS = sorted({word for command in LISTED for word in command.split()[1:]})
OPTIONS = ["-c", "-C", "-m", "-u", "-n", "-y", "-f", "-x", "-p", "-lc", "-v", "--", "-", "--fix", "--check"]
SHAPES = [
    *("{}", "cd x && {}", "A=1 {}", "sudo {}", "env A=1 {}", "time {}", "timeout 5 {}", "nohup {} &", "{} | cat"),
    *("bash -c '{}'", 'sh -lc "{}"', "eval {}", "npx {}", "uv run {}", "python -m {}", "pnpm {}", "yarn run {}"),
    *("echo {}", "( {} )", "if {}; then ls; fi", "ls; {}", "cat <<E\n{}\nE", "# {}\nls", "$({})", "xargs {}"),
]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")

simple = st.one_of(
    st.sampled_from(LISTED),
    st.builds(
        lambda program, rest: " ".join((program, *rest)),
        st.sampled_from(PROGRAMS),
        st.lists(st.sampled_from([*WORDS, *OPTIONS, *PROGRAMS, "x", "'a b'", "A=1", "5", "a/b", "\n"]), max_size=5),
    ),
)
commands = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(lambda shape, command: shape.replace("{}", command), st.sampled_from(SHAPES), inner),
        st.builds(
            lambda first, by, second: f"{first}{by}{second}",
            inner,
            st.sampled_from([" && ", "; ", " | ", " || ", "\n", " & ", " ", ""]),
            inner,
        ),
    ),
    max_leaves=6,
)
syntax = st.text(
    st.sampled_from([*"'\"`$(){}[]<>|&;#=\\ \n\t-@/!", "a", "E", "1"]),
    max_size=60,
)
anything = st.one_of(st.text(), syntax, commands)


@given(anything)
@example("\ud800 'x")
@example("\x00")
def test_any_text_can_be_read_and_always_reads_the_same(command: str) -> None:
    reading = read(command)
    assert reading == read(command)
    assert reading.family is None or reading.family in FAMILIES


@given(anything)
def test_a_verb_reads_back_to_itself_and_to_the_family_of_its_command(command: str) -> None:
    reading = read(command)
    assert read(reading.verb) == reading


@given(anything)
def test_a_verb_is_a_plain_program_name_and_listed_words(command: str) -> None:
    found = read(command).verb
    if found == UNREADABLE:
        return
    program, *words = found.split(" ")
    assert NAME.fullmatch(program)
    assert VERB_WORDS.issuperset(words)


secrets = st.text("ghijkl0123", min_size=12, max_size=20).map("zq".__add__)
additions = st.sampled_from(
    [" {}", " --token={}", " --token {}", " '{}'", " {}/{}", " a={}", " | x {}", " > {}", " <<< {}"]
)


@given(st.sampled_from(SHAPES), st.sampled_from(LISTED), additions, secrets)
def test_an_argument_never_shows_in_a_verb(shape: str, command: str, addition: str, secret: str) -> None:
    ran = shape.replace("{}", command + addition.replace("{}", secret))
    assert secret not in read(ran).verb


@given(syntax, st.integers(1, 4000))
def test_time_stays_bounded_however_often_a_text_repeats(unit: str, times: int) -> None:
    start = time.process_time()
    read((unit * times)[: 2 * COMMAND_LIMIT])
    assert time.process_time() - start < 4


@given(st.lists(st.sampled_from(["git", "x=1", "./a.py", "-m", "for", "in", "do", "done", "function", " ", "é"])))
def test_a_command_of_words_and_blanks_is_split_as_any_other(words: list[str]) -> None:
    """The short way for easy commands and the scanner agree on what is run; a comment never changes that."""
    text = " ".join(words)
    assert list(simple_commands(text)) == list(simple_commands(f"{text} #"))
