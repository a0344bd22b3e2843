"""Words of Slurm and the values they mean."""

from __future__ import annotations

from typing import Any

import pytest

from cmscale.adapters.slurm import parse
from cmscale.adapters.slurm.hostlist import expand, fold
from cmscale.model import ANYWHERE, Part

_ANY = frozenset[str]()


def _all(*alternatives: str) -> tuple[Part, ...]:
    return (Part(0, tuple(frozenset(each.split()) for each in alternatives)),)


@pytest.mark.parametrize(
    ("word", "mib"),
    [
        ("2G", 2048),
        ("100M", 100),
        ("100", 100),
        ("1.50G", 1536),
        ("62.50G", 64000),
        ("0", 0),
        ("500Mc", 500),
        ("500Mn", 500),
        ("1K", 1),
        ("1T", 1024 * 1024),
        ("(null)", 0),
        ("N/A", 0),
    ],
)
def test_memory_is_mib_rounded_up(word: str, mib: int) -> None:
    assert parse.memory(word) == mib


@pytest.mark.parametrize(
    ("word", "seconds"),
    [
        ("5:00", 300),
        ("1:02:03", 3723),
        ("1-00:00:00", 86400),
        ("365-00:00:00", 365 * 86400),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("Partition_Limit", None),
        ("N/A", None),
    ],
)
def test_a_time_limit_is_seconds_or_none(word: str, seconds: int | None) -> None:
    assert parse.duration(word) == seconds


@pytest.mark.parametrize(
    ("word", "counts"),
    [
        ("gpu:t4:1", {("gpu", "t4"): 1}),
        ("gpu:t4:1(S:0-1)", {("gpu", "t4"): 1}),
        ("gres:gpu:t4:1", {("gpu", "t4"): 1}),
        ("gres/gpu:t4=1", {("gpu", "t4"): 1}),
        ("gres/gpu:t4:1", {("gpu", "t4"): 1}),
        ("gres:gpu=2", {("gpu", ""): 2}),
        ("gres/gpu", {("gpu", ""): 1}),
        ("gpu:t4", {("gpu", "t4"): 1}),
        ("gpu:2(IDX:0-1,3)", {("gpu", ""): 2}),
        ("gpu:t4:0(IDX:N/A)", {("gpu", "t4"): 0}),
        ("gpu:a100:2(S:0),shard:a100:8(S:0)", {("gpu", "a100"): 2, ("shard", "a100"): 8}),
        ("gpu:t4:1(S:0),gpu:t4:1(S:1)", {("gpu", "t4"): 2}),
        ("mps:200,nvme:1K", {("mps", ""): 200, ("nvme", ""): 1024}),
        ("(null)", {}),
        ("N/A", {}),
    ],
)
def test_generic_resources_are_counted_by_name_and_type(word: str, counts: dict[tuple[str, str], int]) -> None:
    assert parse.gres(word) == counts


def test_the_most_numerous_type_of_gpu_stands_for_a_node_of_several() -> None:
    assert parse.gpus("gpu:a100:2(S:0),gpu:t4:4(S:1),shard:9") == (4, "t4")


def test_trackable_resources_keep_their_words() -> None:
    assert parse.tres("cpu=8,mem=16G,node=1,billing=8,gres/gpu=2") == {
        "cpu": "8",
        "mem": "16G",
        "node": "1",
        "billing": "8",
        "gpu": "2",
    }


@pytest.mark.parametrize(
    ("word", "count", "limit"),
    [
        ("1-19:2%3", 10, 3),
        ("1,3,5-7", 5, 0),
        ("7", 1, 0),
        ("0-9999%50", 10000, 50),
    ],
)
def test_array_tasks_are_counted_and_their_limit_is_kept(word: str, count: int, limit: int) -> None:
    assert parse.array_tasks(word) == (count, limit)


@pytest.mark.parametrize(
    ("word", "flags"),
    [
        ("idle+cloud+drain+powered_down", {"IDLE", "CLOUD", "DRAIN", "POWERED_DOWN"}),
        ("idle~", {"IDLE"}),
        ("DOWN*+CLOUD", {"DOWN", "CLOUD"}),
    ],
)
def test_states_are_upper_case_flags_without_marks(word: str, flags: set[str]) -> None:
    assert parse.states(word) == flags


@pytest.mark.parametrize(
    ("word", "choices"),
    [
        ("aws", (_all("aws"),)),
        ("aws&cloud", (_all("aws cloud"),)),
        ("aws,cloud", (_all("aws cloud"),)),
        ("aws|onprem", (_all("aws", "onprem"),)),
        ("a|b&c", (_all("a c", "b c"),)),
        ("(aws|onprem)&cloud", (_all("aws cloud", "onprem cloud"),)),
        ("(a&b)|c", (_all("a b", "c"),)),
        ("[aws|onprem]", (_all("aws"), _all("onprem"))),
        ("gpu&[rack1|rack2]", (_all("gpu rack1"), _all("gpu rack2"))),
        ("[(a&b)|c]", (_all("a b"), _all("c"))),
        (
            "[aws*2&onprem*1]",
            ((Part(2, (frozenset({"aws"}),)), Part(1, (frozenset({"onprem"}),)), Part(0, (_ANY,))),),
        ),
        (
            "aws*2&onprem*1",
            ((Part(2, (frozenset({"aws"}),)), Part(1, (frozenset({"onprem"}),)), Part(0, (_ANY,))),),
        ),
        ("fast*4", ((Part(4, (frozenset({"fast"}),)), Part(0, (_ANY,))),)),
        (
            "x&[(a|b)*2&c*1]",
            (
                (
                    Part(2, (frozenset({"x", "a"}), frozenset({"x", "b"}))),
                    Part(1, (frozenset({"x", "c"}),)),
                    Part(0, (frozenset({"x"}),)),
                ),
            ),
        ),
    ],
)
def test_a_constraint_is_alternatives_of_parts(word: str, choices: Any) -> None:
    found = parse.constraint(word)
    assert found.choices == choices
    assert found.text == word


def test_no_constraint_is_anywhere() -> None:
    assert parse.constraint("(null)") is ANYWHERE


@pytest.mark.parametrize("word", ["[a^b]", "!a", "a&", "[a&b]", "[a|b]|c", "(a", "((a))", "a*0", "[a*2|b*1]", "a|b*2"])
def test_a_constraint_of_unknown_form_is_named(word: str) -> None:
    with pytest.raises(ValueError, match="the constraint"):
        parse.constraint(word)


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (parse.memory, "lots"),
        (parse.duration, "INVALID"),
        (parse.moment, "2026-11-20T16:35:44"),
        (parse.number, "many"),
        (parse.gres, "gpu,,x"),
        (parse.array_tasks, "1,3,5,..."),
        (parse.array_tasks, ""),
        (expand, "n[1-"),
    ],
)
def test_a_word_of_unknown_form_is_never_guessed(function: Any, word: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        function(word)


def test_names_are_folded_and_expanded_in_order() -> None:
    names = expand("t4-[1-11]")
    assert names == tuple(f"t4-{number}" for number in range(1, 12))
    assert fold(reversed(names)) == "t4-[1-11]"
    assert fold(["b", "a1", "a2", "a2"]) == "a[1-2],b"
