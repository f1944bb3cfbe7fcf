"""The comparison of results before and after a change."""

from __future__ import annotations

from testing.same_results import differences


def test_values_that_differ_are_named_with_their_places() -> None:
    before = '{"rows": [{"ns": 1}, {"ns": 2}], "valid": true}'
    after = '{"rows": [{"ns": 1}, {"ns": 3}], "valid": true, "more": 4}'
    assert differences(before, before) == []
    assert differences(before, after) == [
        ".rows[1].ns: 2 was, 3 is",
        ".more: None was, 4 is",
    ]
