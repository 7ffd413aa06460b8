"""Stop strings: never leaked, and found no matter how the text is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvarn_router.stop_strings import StopMatcher


def run(pieces, stops, include=False):
    matcher = StopMatcher(stops, include)
    out = "".join(matcher.push(piece) for piece in pieces)
    return out + (matcher.flush() if matcher.matched is None else ""), matcher.matched


@pytest.mark.parametrize(
    ("pieces", "stops", "expected"),
    [
        (["hello", " wor", "ld!"], ["world"], ("hello ", "world")),
        (["a", "b", "a", "b", "c"], ["abc"], ("ab", "abc")),
        (["aab"], ["ab"], ("a", "ab")),
        (["STO", "P"], ["STOP", "TO"], ("S", "TO")),
        (["xyz"], ["z", "yz"], ("x", "yz")),
        (["no end"], ["end?"], ("no end", None)),
        (["日", "本"], ["日本"], ("", "日本")),
        (["plain"], [], ("plain", None)),
    ],
)
def test_match_and_output(pieces, stops, expected):
    assert run(pieces, stops) == expected


def test_stop_string_is_kept_on_request():
    assert run(["one st", "op two"], ["stop"], include=True) == ("one stop", "stop")


def test_a_possible_beginning_is_held_back():
    matcher = StopMatcher(["<end>"], False)
    assert matcher.push("text <en") == "text "
    assert matcher.push("x") == "<enx"


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_result_does_not_depend_on_the_pieces(text, stops, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    out, matched = run(pieces, stops)
    assert (out, matched) == run([text], stops)
    assert not any(stop in out for stop in stops)
