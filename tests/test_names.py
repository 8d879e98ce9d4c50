"""Names: what a reader cannot see is refused, and what a reader cannot tell apart is found."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InputError
from pipeline.names import checked_name, normal, twin_of

VISIBLE = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20)


@pytest.mark.parametrize("name", ["Zoë", "山田 太郎", "Ольга", "O'Neill-Smith", "عمر", "anna 2", "a", "x" * 200])
def test_names_of_people_stay_as_they_are(name):
    assert checked_name(name) == name


def test_a_name_is_one_name_however_its_accents_are_written():
    assert checked_name(unicodedata.normalize("NFD", "Zoë")) == "Zoë"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "x" * 201, "a\nb", "a\0b", "an\u200bna", "a\u202eb", "\u2066a", " anna", "anna ", "a  b",
     "a\u00a0b", "a\u2028b", "a\ufe0f", "a\u3164b", "\ud800", "\ufffd", "a\u00adb", "\ue000"],
)  # fmt: skip
def test_what_nobody_sees_is_refused(name):
    with pytest.raises(InputError, match="name"):
        checked_name(name)


def test_a_name_that_no_name_can_be_as_long_as_is_not_put_in_normal_form():
    assert normal("e\u0301" * 200) == "é" * 200
    with pytest.raises(InputError, match="at most 200 characters, got 1000"):
        normal("e\u0301" * 500)


@pytest.mark.parametrize("twin", ["Anna", "аnna", "аnnа", "ANNA", "ａｎｎａ", "αnnα"])
def test_a_twin_is_found(twin):
    assert twin_of(twin, ["lars", "anna"]) == "anna"


@pytest.mark.parametrize("name", ["ana", "hanna", "anne", "Änna", "anná"])
def test_another_name_is_no_twin(name):
    assert twin_of(name, ["anna"]) is None


@given(VISIBLE)
def test_every_name_is_its_own_twin_in_any_case(name):
    assert twin_of(name, [name]) == name
    assert twin_of(name.casefold(), [name]) == name
