"""Names: what a reader cannot see is refused, and what a reader cannot tell apart is found."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InputError
from pipeline.names import checked_name, normal, twin_of

# Code points that a renderer without a use for them shows nothing of: DerivedCoreProperties.txt of Unicode 15,
# Default_Ignorable_Code_Point.
IGNORABLE = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0), *range(0x180B, 0x1810),
    *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xFE00, 0xFE10),
    *range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000),
]  # fmt: skip
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


@given(VISIBLE, st.sampled_from(IGNORABLE), st.integers(0, 20))
def test_a_character_that_may_be_ignored_is_refused_wherever_it_is_and_makes_no_other_name(name, code, at):
    odd = f"{name[:at]}{chr(code)}{name[at:]}"
    with pytest.raises(InputError, match=f"visible characters and spaces, got U\\+{code:04X}"):
        checked_name(odd)
    assert twin_of(name, [odd]) == odd  # of a store that took it


def test_no_character_that_may_be_ignored_is_in_a_name():
    for code in IGNORABLE:
        with pytest.raises(InputError, match="visible characters"):
            pytest.fail(checked_name(f"an{chr(code)}na"))


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
