"""The usage of a step, as each release states it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from burnd.harness.opencode.rows import OpencodeTokens, message_usage, net_usage
from burnd.records import Usage
from tests.harness.opencode.data import tokens
from tests.harness.opencode.reading import response


def read(data: dict[str, Any]) -> OpencodeTokens:
    return msgspec.convert(data, OpencodeTokens)


def test_input_is_net_of_the_cache_and_output_of_reasoning() -> None:
    """As verified with a scripted provider: prompt 2000 of which 1500 cached, completion 120 with 40 of reasoning."""
    stated = {"total": 2120, "input": 500, "output": 80, "reasoning": 40, "cache": {"read": 1500, "write": 0}}
    assert net_usage(read(stated)) == Usage(input=500, output=80, reasoning=40, cache_read=1500)


def test_before_1_3_16_output_held_the_reasoning_too() -> None:
    """The total reveals it: it equals input, output and cache without counting reasoning again."""
    stated = {"total": 2120, "input": 500, "output": 120, "reasoning": 40, "cache": {"read": 1500, "write": 0}}
    assert net_usage(read(stated)) == Usage(input=500, output=80, reasoning=40, cache_read=1500)


@pytest.mark.parametrize("version", ["1.3.16", "1.18.33", "2.0.0-beta.1", None, "", "local"])
def test_without_a_total_the_figures_are_taken_as_they_stand(version: str | None) -> None:
    stated = {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 0, "write": 3}}
    assert net_usage(read(stated), version) == Usage(input=10, output=5, reasoning=2, cache_create_5m=3)


@pytest.mark.parametrize("version", ["0.15.31", "1.1.50", "1.3.15"])
def test_the_first_releases_wrote_no_total_and_counted_reasoning_within_output(version: str) -> None:
    stated = {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 0, "write": 3}}
    expected = Usage(input=10, output=3, reasoning=2, cache_create_5m=3)
    assert net_usage(read(stated), version) == expected
    assert message_usage(read(stated), [read(stated)], version) == expected


def test_the_total_decides_in_a_session_of_an_old_and_a_new_release() -> None:
    assert net_usage(read(tokens(output=5, reasoning=2)), "1.1.50") == Usage(output=5, reasoning=2)


@pytest.mark.parametrize("gross", [False, True])
def test_both_ways_of_counting_come_to_the_same(gross: bool) -> None:
    expected = Usage(input=7, output=11, reasoning=13, cache_read=17, cache_create_5m=19)
    assert net_usage(read(tokens(gross=gross, input=7, output=11, reasoning=13, read=17, write=19))) == expected


def test_several_steps_of_a_message_add_up() -> None:
    """The message's own figure is that of its last step; a single step is stated twice and counts once."""
    one, two = tokens(input=5, output=1), tokens(input=7, output=2, gross=True, reasoning=1)
    assert message_usage(read(two), [read(one), read(two)]) == Usage(input=12, output=3, reasoning=1)
    assert message_usage(read(one), [read(one)]) == Usage(input=5, output=1)
    assert message_usage(read(one), []) == Usage(input=5, output=1)


def test_a_step_counts_though_its_message_was_not_updated() -> None:
    """Killed between the two writes: the tokens are in the part alone."""
    found = response({"type": "step-finish", "tokens": tokens(input=5, output=1)}, tokens=tokens(total=False))
    assert found.usage == Usage(input=5, output=1)


@pytest.mark.parametrize("odd", [{}, {"input": -5}, {"input": 1e300}, {"input": None, "cache": None}])
def test_impossible_numbers_count_as_none(odd: dict[str, Any]) -> None:
    assert net_usage(read(odd)) == Usage()


def test_floats_are_whole_tokens() -> None:
    assert net_usage(read({"input": 5.0, "output": 2.0})) == Usage(input=5, output=2)
