"""Sizes of blocks, the row that a turn is on, and the price of each block by its position."""

from __future__ import annotations

import pytest

from burnd.attribution.causes import explain
from burnd.attribution.rail import Rail
from burnd.attribution.rates import Spent
from burnd.attribution.row import IMAGE_TOKENS
from burnd.records import Block, ServerTools, Turn, Usage
from tests.attribution.scenes import Scene, call, only, paid, prompt, result, said


def row_of(scene: Scene, turn: Turn) -> list[tuple[str, int]]:
    """The context of a turn: kinds and tokens, in order of appearance."""
    return [(part.cause.kind, part.tokens) for part in scene.opened(turn.message_id) if part.tokens]


def test_the_prefix_is_what_the_first_turn_has_beyond_its_blocks() -> None:
    scene = Scene()
    first = scene.turn(15_000, entered=(prompt(400), Block(kind="reminder", bytes=1_000)))
    assert row_of(scene, first) == [("prefix", 15_000 - 108 - 258), ("prompt", 108), ("reminder", 258)]


def test_output_has_its_billed_tokens_and_inputs_share_the_rest_by_bytes() -> None:
    scene = Scene()
    calls = (call(call_id="c1"), call("Bash", "ls", call_id="c2"))
    made = (said("call", 100, "c1"), said("call", 300, "c2"))
    scene.turn(10_000, 80, entered=(prompt(),), made=made, tool_calls=calls)
    scene.turn(10_000 + 80 + 4_000, entered=(result(4_000 - 32, "c1"), result(12_000 - 32, "c2")))
    explained = scene.explained()
    assert only(explained, "call", tool="Read").entered == 20 + 1_000
    assert only(explained, "call", tool="Bash").entered == 60 + 3_000


def test_growth_that_no_block_can_explain_is_its_own_cause() -> None:
    """No text has more than a token for two bytes: what is beyond is not pinned on it."""
    scene = Scene()
    scene.turn(10_000, 50, entered=(prompt(),), made=(said("call", 100, "c1"),), tool_calls=(call(),))
    second = scene.turn(10_000 + 50 + 5_000, entered=(result(2_000),))
    assert row_of(scene, second)[-2:] == [("call", 50 + 2 * 508), ("unexplained", 5_000 - 2 * 508)]


def test_an_image_weighs_a_fixed_estimate() -> None:
    scene = Scene()
    scene.turn(10_000, entered=(prompt(0), Block(kind="image", bytes=900_000)))
    assert only(scene.explained(), "prompt").entered == IMAGE_TOKENS + 8


@pytest.mark.parametrize("whole", [8_000, 7_000, 5_000])
def test_classes_lie_along_the_row_in_order(whole: int) -> None:
    """Cache reads come first, then 1-hour writes, then 5-minute writes, then uncached input."""
    scene = Scene()
    usage = Usage(cache_read=whole, cache_create_1h=500, cache_create_5m=300, input=200)
    scene.turn(0, usage=usage, entered=(prompt(3_968),))
    explained = scene.explained()
    assert paid(only(explained, "prefix")) == Spent(cache_read=whole)
    assert paid(only(explained, "prompt")) == Spent(cache_create_1h=500, cache_create_5m=300, input=200)


def test_a_cache_that_expired_is_a_second_entry() -> None:
    scene = Scene()
    scene.turn(10_000, 50, entered=(prompt(),), made=(said("call", 100, "c1"),), tool_calls=(call(),))
    scene.turn(13_050, 10, entered=(result(12_000),), made=(said(),))
    scene.turn(13_060)
    scene.turn(13_060, read=0, pause=4_000)
    scene.turn(13_060)
    read = only(scene.explained(), "call")
    assert (read.entered, read.rides, read.reentries) == (3_050, 3, 1)
    assert paid(read) == Spent(input=2 * 3_050, output=50, cache_read=2 * 3_050)


def test_thinking_rides_while_tools_are_called() -> None:
    scene = Scene()
    made = (said("thinking", 2_000), said("call", 100, "c1"))
    scene.turn(10_000, 500 + 25, entered=(prompt(),), made=made, tool_calls=(call(),))
    second = scene.turn(10_525 + 1_000, entered=(result(4_000),))
    assert row_of(scene, second)[2:] == [("thinking", 500), ("call", 25 + 1_000)]


def test_thinking_that_a_new_prompt_drops_does_not_ride() -> None:
    """Providers drop earlier thinking at a new prompt, so the row shrinks."""
    scene = Scene()
    made = (said("thinking", 4_000), said("call", 400, "c1"))
    scene.turn(10_000, 1_100, entered=(prompt(),), made=made, tool_calls=(call(),))
    scene.turn(12_100, 600, entered=(result(4_000),), made=(said("thinking", 2_000), said("text", 400)))
    third = scene.turn(12_100 - 1_000 + 100 + 50, entered=(prompt(168),), read=10_000)
    assert row_of(scene, third) == [
        ("prefix", 9_892),
        ("prompt", 108),
        ("call", 1_100),
        ("answer", 100),
        ("prompt", 50),
    ]


def test_thinking_has_the_output_that_nothing_else_can_have() -> None:
    """Shown shortened or only as a signature, thinking is still what the text is too short for."""
    scene = Scene()
    scene.turn(10_000, 5_000, made=(said("thinking", 800), said("text", 400)))
    explained = scene.explained()
    assert paid(only(explained, "answer")).output == 2 * 108
    assert paid(only(explained, "thinking")).output == 5_000 - 2 * 108


def test_reasoning_that_is_billed_apart_is_thinking() -> None:
    scene = Scene()
    scene.turn(0, usage=Usage(input=10_000, output=100, reasoning=700), made=(said(),))
    second = scene.turn(10_800 + 50, entered=(prompt(168),))
    assert paid(only(scene.explained(), "thinking")).reasoning == 700
    assert ("thinking", 700) in row_of(scene, second)


def test_output_of_which_nothing_is_known_is_unexplained() -> None:
    scene = Scene()
    scene.turn(10_000, 70)
    assert paid(only(scene.explained(), "unexplained")) == Spent(output=70)


def test_calls_without_sizes_share_the_output() -> None:
    scene = Scene()
    scene.turn(10_000, 70, tool_calls=(call(call_id="c1"), call("Bash", "ls", call_id="c2")))
    explained = scene.explained()
    assert paid(only(explained, "call", tool="Read")).output == 35
    assert paid(only(explained, "call", tool="Bash")).output == 35


def test_a_partial_turn_is_sized_by_its_bytes() -> None:
    """A log with one output token for a long answer: the answer still takes its size in the context."""
    scene = Scene()
    scene.turn(10_000, 1, entered=(prompt(),), made=(said("text", 4_000),), quality="partial")
    second = scene.turn(10_000 + 1_008 + 50, entered=(prompt(168),))
    assert row_of(scene, second)[2:] == [("answer", 1_008), ("prompt", 50)]


def test_a_turn_without_usage_hands_its_blocks_on() -> None:
    scene = Scene()
    scene.turn(10_000, entered=(prompt(),))
    scene.turn(0, usage=Usage(), entered=(prompt(968),), quality="empty")
    third = scene.turn(10_300, entered=(prompt(168),), read=10_000)
    assert row_of(scene, third) == [("prefix", 9_892), ("prompt", 108), ("prompt", 250), ("prompt", 50)]


def test_a_compaction_begins_a_row_with_prefix_and_summary() -> None:
    scene = Scene()
    scene.turn(10_108, 50, entered=(prompt(),), made=(said("call", 100, "c1"),), tool_calls=(call(),))
    scene.turn(60_158, 10, entered=(result(200_000),), made=(said(),))
    scene.compaction()
    summary = Block(kind="summary", bytes=3_968)
    third = scene.turn(11_050, entered=(summary, prompt(168)), parent=None, read=10_000)
    assert row_of(scene, third) == [("prefix", 10_000), ("summary", 1_000), ("prompt", 50)]
    explained = scene.explained()
    assert (only(explained, "call").rides, only(explained, "prefix").rides) == (0, 2)
    assert explained.begins == (0, 2)


def test_without_a_summary_block_the_last_answer_is_the_summary() -> None:
    """Some harnesses request the summary in a separate turn and continue from its answer."""
    scene = Scene()
    scene.turn(60_108, 20, entered=(prompt(),), made=(said(),))
    scene.compaction()
    scene.turn(60_228, 900, entered=(prompt(),), made=(said("text", 3_600),))
    third = scene.turn(60_000 // 6, entered=(prompt(168),), read=0)
    assert [kind for kind, _ in row_of(scene, third)] == ["prefix", "summary", "prompt"]
    assert only(scene.explained(), "summary").entered == 900


def test_a_rewound_branch_goes_back_to_where_it_branched() -> None:
    """The abandoned branch was paid for and is not in the context of the new one."""
    scene = Scene()
    first = scene.turn(10_108, 100, entered=(prompt(),), made=(said(),))
    scene.turn(10_258, 40, entered=(prompt(168),), made=(said("call", 100, "c1"),), tool_calls=(call(),))
    scene.turn(15_298, 10, entered=(result(20_000),), made=(said(),))
    fourth = scene.turn(10_308, entered=(prompt(368),), parent=first.message_id, read=10_208)
    assert row_of(scene, fourth) == [("prefix", 10_000), ("prompt", 108), ("answer", 100), ("prompt", 100)]
    assert only(scene.explained(), "call").rides == 0


def test_two_clients_may_write_one_session_in_turns() -> None:
    scene = Scene()
    root = scene.turn(10_108, 100, entered=(prompt(),), made=(said(),)).message_id
    one = scene.turn(10_308, 10, entered=(prompt(368),), made=(said(),), parent=root).message_id
    two = scene.turn(10_508, 20, entered=(prompt(1_168),), made=(said(),), parent=root, read=10_208).message_id
    again = scene.turn(10_368, entered=(prompt(168),), parent=one, read=10_318)
    other = scene.turn(10_578, entered=(prompt(168),), parent=two, read=10_528)
    assert [tokens for _, tokens in row_of(scene, again)] == [10_000, 108, 100, 100, 10, 50]
    assert [tokens for _, tokens in row_of(scene, other)] == [10_000, 108, 100, 300, 20, 50]


def test_a_line_that_names_no_parent_but_reads_on_goes_on() -> None:
    """More came from the cache than a row that begins could have there."""
    scene = Scene()
    scene.turn(10_108, 100, entered=(prompt(),), made=(said(),))
    scene.turn(30_208, 100, entered=(prompt(80_000),), made=(said(),))
    third = scene.turn(30_358, entered=(prompt(168),), parent=None)
    assert row_of(scene, third)[2:] == [("answer", 100), ("prompt", 20_000), ("answer", 100), ("prompt", 50)]


def test_turns_without_parents_are_a_line() -> None:
    """Programs that append their own turns need not name parents."""
    scene = Scene()
    scene.turn(10_108, 100, entered=(prompt(),), made=(said(),), parent=None)
    second = scene.turn(10_258, 10, entered=(prompt(168),), parent=None, read=0)
    assert row_of(scene, second) == [("prefix", 10_000), ("prompt", 108), ("answer", 100), ("prompt", 50)]


def test_a_fork_inherits_its_history_as_one_cause() -> None:
    scene = Scene()
    scene.copy(prompt(400), said("text", 400))
    scene.copy(prompt(400), result(39_968))
    own = scene.turn(40_000, 10, entered=(prompt(368),), made=(said(),), read=20_000)
    scene.turn(40_010)
    inherited = only(scene.explained(), "inherited")
    assert row_of(scene, own) == [("prefix", 40_000 - 10_324 - 100), ("inherited", 10_324), ("prompt", 100)]
    assert (inherited.entered, inherited.rides) == (10_324, 1)


def test_a_log_that_begins_in_the_middle_has_a_history() -> None:
    scene = Scene()
    scene.turn(50_000, entered=(prompt(368),), turn_index=7)
    assert only(scene.explained(), "inherited").entered == 49_900


def test_another_tokenizer_rescales_the_row() -> None:
    """The same blocks counted by another model: all grow in proportion, and none of it is unexplained."""
    scene = Scene()
    scene.turn(10_000, 50, entered=(prompt(),), made=(said("call", 100, "c1"),), tool_calls=(call(),))
    scene.turn(20_050, 100, entered=(result(40_000),), made=(said(),))
    third = scene.turn(26_215, entered=(prompt(168),), model="another-model", read=0)
    scaled = dict(row_of(scene, third))
    assert "unexplained" not in scaled
    assert scaled["call"] in range(13_050, 13_080)


def test_a_shrunk_context_lost_its_oldest_results() -> None:
    """No record explains the shrinking: cache reads stay, and the oldest results go first."""
    scene = Scene()
    for n in range(4):
        made, calls = (said("call", 100, f"c{n}"),), (call(target=f"/p/{n}.py", call_id=f"c{n}"),)
        entered = (prompt(),) if n == 0 else (result(20_000, f"c{n - 1}"),)
        scene.turn(10_108 + n * 5_050, 50, entered=entered, made=made, tool_calls=calls)
    last = scene.turn(20_208 + 50, entered=(), read=15_158)
    parts = scene.opened(last.message_id)
    there = {part.cause.target: part.tokens for part in parts if part.cause.kind == "call"}
    assert there == {"/p/0.py": 5_050, "/p/2.py": 5_050, "/p/3.py": 50}


def test_a_result_without_its_call_counts_as_a_call() -> None:
    scene = Scene()
    scene.turn(10_000, entered=(prompt(), result(4_000, "c-from-before")))
    found = only(scene.explained(), "call")
    assert (found.tool, found.call_id) == (None, "c-from-before")


def test_what_a_provider_searched_is_input_of_its_call() -> None:
    scene = Scene()
    made = (said("call", 60, "c1"), Block(kind="result", bytes=8_000, call_id="c1"), said("text", 300))
    scene.turn(10_000, 90, made=made, tool_calls=(call("WebSearch", None),), server_tools=ServerTools(search=2))
    scene.turn(12_090 + 50, entered=(prompt(168),))
    search = only(scene.explained(), "call")
    assert paid(search).searches == 2
    assert paid(search).output == 15
    assert search.entered > 1_900


def test_a_call_that_is_billed_beside_a_turn_leaves_the_row_alone() -> None:
    scene = Scene()
    first = scene.turn(10_108, 100, entered=(prompt(),), made=(said(),))
    beside = Turn(
        source="claude-code",
        session_id="s1",
        rail_id="main",
        message_id=f"{first.message_id}:iter:0",
        turn_index=0,
        parent=first.message_id,
        ts=first.ts,
        model="claude-opus-4-5",
        usage=Usage(input=40_000, output=3_000),
    )
    scene.entries.append(beside)
    third = scene.turn(10_258, entered=(prompt(168),), turn_index=1)
    assert row_of(scene, third) == [("prefix", 10_000), ("prompt", 108), ("answer", 100), ("prompt", 50)]
    assert scene.explained().misses == ()


def test_an_absurd_log_costs_no_more_than_its_credit() -> None:
    """Tokenizers that alternate forever would rewrite the whole row each time; the credit limits that."""
    scene = Scene()
    for n in range(1_500):
        scene.turn(20_000 + 100 * n + 8_000 * (n % 2), read=0, model=("a", "b")[n % 2], entered=(prompt(300),))
    rail = Rail()
    for entry in scene.entries:
        rail.feed(entry)
    assert len(rail.row.ends) < 1_500 * (64 + 3) + 4_096


def test_endless_turns_without_usage_are_bounded() -> None:
    """Blocks that were never billed are carried along, but not without limit."""
    scene = Scene()
    for _ in range(600):
        scene.turn(0, usage=Usage(), entered=(prompt(92),), quality="empty")
    last = scene.turn(50_000, entered=(prompt(92),))
    kinds = [kind for kind, _ in row_of(scene, last)]
    assert (kinds.count("prompt"), kinds.count("unexplained")) == (257, 1)


def test_turns_that_are_not_selected_count_for_nothing() -> None:
    """With a time filter a cause is what it paid since then: one that entered before only rode."""
    scene = Scene()
    scene.turn(10_000, 50, entered=(prompt(),), made=(said("call", 100, "c1"),), tool_calls=(call(),))
    scene.turn(13_050, 10, entered=(result(12_000),), made=(said(),))
    since = scene.turn(13_060).ts
    scene.turn(13_060)
    read = only(explain(scene.entries, (), lambda turn: turn.ts >= since), "call")
    assert (read.entered, read.rides, paid(read)) == (0, 2, Spent(cache_read=2 * 3_050))


def test_rates_are_separate() -> None:
    """A cause's tokens are by model, provider, crossed threshold and speed."""
    scene = Scene()
    scene.turn(100_000, entered=(prompt(),))
    scene.turn(250_000, entered=(prompt(600_000),), speed="fast", provider="anthropic")
    prefix = only(explain(scene.entries, (128_000, 200_000)), "prefix")
    assert [(r.over, r.speed, r.provider) for r in prefix.spent] == [(0, None, None), (200_000, "fast", "anthropic")]
