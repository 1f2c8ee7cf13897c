"""Number formats against the casts of numpy and ml_dtypes, and rounding against its definition."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statetrack.errors import InvalidInput
from statetrack.theory.number_formats import FORMATS_BY_NAME, NumberFormat, number_format

DTYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
every_format = pytest.mark.parametrize("form", list(FORMATS_BY_NAME.values()), ids=lambda f: f.name)
narrow = [f for f in FORMATS_BY_NAME.values() if f.precision <= 11]
doubles = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("form", narrow, ids=lambda f: f.name)
def test_a_format_holds_exactly_the_numbers_of_its_bit_patterns(form: NumberFormat) -> None:
    dtype = np.dtype(DTYPES[form.name])
    patterns = np.arange(1 << (8 * dtype.itemsize), dtype=np.uint16 if dtype.itemsize == 2 else np.uint8)
    values = patterns.view(dtype).astype(np.float64)
    values = values[np.isfinite(values)]
    assert np.array_equal(form.rounded(values), values)
    assert float(form.largest) == values.max()
    assert float(form.tiny) == values[values > 0].min()


@pytest.mark.parametrize("form", narrow, ids=lambda f: f.name)
def test_rounding_of_midpoints_and_their_neighbours_is_that_of_the_cast(form: NumberFormat) -> None:
    dtype = np.dtype(DTYPES[form.name])
    patterns = np.arange(1 << (8 * dtype.itemsize), dtype=np.uint16 if dtype.itemsize == 2 else np.uint8)
    values = np.unique(patterns.view(dtype).astype(np.float64))
    values = values[np.isfinite(values)]
    middles = (values[1:] + values[:-1]) / 2
    for x in (middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)):
        # A cast of a double to a narrow format may pass through float32; only doubles that float32 holds are compared.
        kept = x[x == x.astype(np.float32)]
        cast = kept.astype(np.float32).astype(dtype).astype(np.float64)
        assert np.array_equal(form.rounded(kept), cast)


@every_format
@given(x=doubles)
@example(x=448.0)
@example(x=463.9999)
@example(x=65519.99)
@example(x=2.0**-150)
@example(x=-(2.0**-10))
def test_the_array_form_is_the_definition(form: NumberFormat, x: float) -> None:
    expected = form.round(Fraction(x))
    found = float(form.rounded(np.array([x]))[0])
    assert (np.isnan(found) and expected is None) or Fraction(found) == expected


@every_format
@given(x=st.fractions(min_value=-100, max_value=100))
def test_rounding_is_nearest_with_ties_to_even(form: NumberFormat, x: Fraction) -> None:
    low, high = form.neighbours(x)
    found = form.round(x)
    assert found is not None
    assert form.holds(low)
    assert form.holds(high)
    assert low <= x <= high
    assert abs(found - x) == min(x - low, high - x)
    if x - low == high - x and low != high:
        step = high - low
        assert (found / step).numerator % 2 == 0
    assert abs(found - x) <= max(form.unit * abs(x), form.tiny / 2)


@given(x=doubles.filter(lambda x: abs(x) < 3e38))
def test_float32_is_numpys(x: float) -> None:
    assert float(number_format("fp32").rounded(np.array([x]))[0]) == float(np.float32(x))


def test_an_unknown_format_and_a_number_beyond_the_largest_are_refused() -> None:
    with pytest.raises(InvalidInput, match="float8_e4m3fn"):
        number_format("fp7")
    with pytest.raises(InvalidInput, match="largest"):
        number_format("e4m3").neighbours(449)
    assert number_format("e4m3").round(470) is None
