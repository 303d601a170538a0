"""Blocks whose bytes are spelled out and whose values are known without any other program."""

import struct
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ember.gguf.types import TYPES_BY_NAME
from tests.foundry.decoding import ROUTES, by_ember


def packed(layout: str, *values: Any) -> NDArray[np.uint8]:
    return np.frombuffer(struct.pack(f"<{layout}", *values), np.uint8)


@pytest.mark.parametrize("route", ROUTES)
class TestByHand:
    """Blocks whose bytes are spelled out and whose values are known without any other program."""

    def test_q8_0(self, route: str) -> None:
        raw = packed("e32b", 0.5, *range(-16, 16))
        assert by_ember(raw, TYPES_BY_NAME["Q8_0"], ROUTES[route]).tolist() == [i / 2 for i in range(-16, 16)]

    def test_q8_0_saturated_and_negative_zero(self, route: str) -> None:
        raw = packed("e32b", -2.0, *[-128, 127, 0, 1] * 8)
        found = by_ember(raw, TYPES_BY_NAME["Q8_0"], ROUTES[route])
        assert found.tolist() == [256, -254, 0, -2] * 8
        assert np.signbit(found[2])

    def test_q4_0(self, route: str) -> None:
        raw = packed("e16B", 2.0, *[i | (15 - i) << 4 for i in range(16)])
        expected = [2.0 * (i - 8) for i in range(16)] + [2.0 * (7 - i) for i in range(16)]
        assert by_ember(raw, TYPES_BY_NAME["Q4_0"], ROUTES[route]).tolist() == expected

    def test_q4_1(self, route: str) -> None:
        raw = packed("ee16B", 0.25, -3.0, *[i | (15 - i) << 4 for i in range(16)])
        expected = [0.25 * i - 3 for i in range(16)] + [0.25 * (15 - i) - 3 for i in range(16)]
        assert by_ember(raw, TYPES_BY_NAME["Q4_1"], ROUTES[route]).tolist() == expected

    def test_q4_k(self, route: str) -> None:
        """Scales 1 to 8 and minima 33 to 40, the last four of each with their upper bits among the first four."""
        scales, minima = list(range(1, 9)), list(range(33, 41))
        six_bits = [scales[i] | (scales[i + 4] >> 4) << 6 for i in range(4)]
        six_bits += [minima[i] | (minima[i + 4] >> 4) << 6 for i in range(4)]
        six_bits += [(scales[i + 4] & 15) | (minima[i + 4] & 15) << 4 for i in range(4)]
        raw = packed("ee12B128B", 0.5, 0.25, *six_bits, *[(i % 16) | (i % 7) << 4 for i in range(128)])
        expected = []
        for group in range(8):
            for i in range(32):
                byte = 32 * (group // 2) + i
                value = byte % 16 if group % 2 == 0 else byte % 7
                expected.append(0.5 * scales[group] * value - 0.25 * minima[group])
        assert by_ember(raw, TYPES_BY_NAME["Q4_K"], ROUTES[route]).tolist() == expected

    def test_q6_k(self, route: str) -> None:
        values = [(7 * i + 3) % 64 for i in range(256)]
        low, high = [0] * 128, [0] * 64
        for i, value in enumerate(values):
            half, quarter, column = i // 128, i % 128 // 32, i % 32
            low[64 * half + 32 * (quarter % 2) + column] |= (value & 15) << 4 * (quarter // 2)
            high[32 * half + column] |= (value >> 4) << 2 * quarter
        scales = list(range(-8, 8))
        raw = packed("128B64B16be", *low, *high, *scales, 0.125)
        expected = [0.125 * scales[i // 16] * (value - 32) for i, value in enumerate(values)]
        assert by_ember(raw, TYPES_BY_NAME["Q6_K"], ROUTES[route]).tolist() == expected

    def test_bf16(self, route: str) -> None:
        raw = packed("4H", 0x3F80, 0xC000, 0x0000, 0x7F80)
        assert by_ember(raw, TYPES_BY_NAME["BF16"], ROUTES[route]).tolist() == [1.0, -2.0, 0.0, float("inf")]

    def test_f32_is_copied_as_it_is(self, route: str) -> None:
        bits = np.array([0x7FA00001, 0xFFC12345, 1, 0x80000000, 0x3F800000], np.uint32)
        found = by_ember(bits.view(np.uint8), TYPES_BY_NAME["F32"], ROUTES[route])
        assert found.view(np.uint32).tolist() == bits.tolist()

    def test_q5_0(self, route: str) -> None:
        """Values -16 to 15 in order: the lower half has upper bit 0, the upper half 1."""
        raw = packed("eI16B", 0.5, 0xFFFF0000, *[i | i << 4 for i in range(16)])
        assert by_ember(raw, TYPES_BY_NAME["Q5_0"], ROUTES[route]).tolist() == [i / 2 for i in range(-16, 16)]

    def test_q5_1(self, route: str) -> None:
        raw = packed("eeI16B", 0.5, -1.0, 1 << 3 | 1 << 31, *[i | (15 - i) << 4 for i in range(16)])
        expected = [0.5 * i - 1 for i in range(16)] + [0.5 * (15 - i) - 1 for i in range(16)]
        expected[3] += 8
        expected[31] += 8
        assert by_ember(raw, TYPES_BY_NAME["Q5_1"], ROUTES[route]).tolist() == expected

    def test_q2_k(self, route: str) -> None:
        values = [(3 * i + i // 7) % 4 for i in range(256)]
        quants = [0] * 64
        for i, value in enumerate(values):
            quants[32 * (i // 128) + i % 32] |= value << 2 * (i % 128 // 32)
        raw = packed("16B64Bee", *[i | (15 - i) << 4 for i in range(16)], *quants, 0.5, 0.25)
        expected = [0.5 * (i // 16) * value - 0.25 * (15 - i // 16) for i, value in enumerate(values)]
        assert by_ember(raw, TYPES_BY_NAME["Q2_K"], ROUTES[route]).tolist() == expected

    def test_q3_k(self, route: str) -> None:
        values, scales = [(5 * i + i // 9) % 8 for i in range(256)], [(11 * i + 1) % 64 for i in range(16)]
        mask, quants, twelve = [0] * 32, [0] * 64, [0] * 12
        for i, value in enumerate(values):
            mask[i % 32] |= (value >> 2) << i // 32
            quants[32 * (i // 128) + i % 32] |= (value & 3) << 2 * (i % 128 // 32)
        for i, scale in enumerate(scales):
            twelve[i % 8] |= (scale & 15) << 4 * (i // 8)
            twelve[8 + i % 4] |= (scale >> 4) << 2 * (i // 4)
        raw = packed("32B64B12Be", *mask, *quants, *twelve, 0.25)
        expected = [0.25 * (scales[i // 16] - 32) * (value - 4) for i, value in enumerate(values)]
        assert by_ember(raw, TYPES_BY_NAME["Q3_K"], ROUTES[route]).tolist() == expected

    def test_q5_k(self, route: str) -> None:
        """Scales 1, 2, 3, 4 and then 16, minima 5, 6, 7, 8 and then 32: an upper bit pair of 1 and one of 2."""
        values = [(7 * i + i // 11) % 32 for i in range(256)]
        low, high = [0] * 128, [0] * 32
        for i, value in enumerate(values):
            low[32 * (i // 64) + i % 32] |= (value & 15) << 4 * (i // 32 % 2)
            high[i % 32] |= (value >> 4) << i // 32
        twelve = [i | 1 << 6 for i in range(1, 5)] + [i | 2 << 6 for i in range(5, 9)] + [0] * 4
        raw = packed("ee12B32B128B", 0.5, 0.125, *twelve, *high, *low)
        scales, minima = [1, 2, 3, 4] + [16] * 4, [5, 6, 7, 8] + [32] * 4
        expected = [0.5 * scales[i // 32] * value - 0.125 * minima[i // 32] for i, value in enumerate(values)]
        assert by_ember(raw, TYPES_BY_NAME["Q5_K"], ROUTES[route]).tolist() == expected

    def test_tq1_0(self, route: str) -> None:
        """Digits are stored as the fraction that they are in base 3, times 256, rounded up."""
        digits = [(i * i + i // 5) % 3 for i in range(256)]
        stored = [_fraction(digits[i:160:32]) for i in range(32)]
        stored += [_fraction(digits[160 + i : 240 : 16]) for i in range(16)]
        stored += [_fraction(digits[240 + i :: 4]) for i in range(4)]
        raw = packed("52Be", *stored, 0.5)
        found = by_ember(raw, TYPES_BY_NAME["TQ1_0"], ROUTES[route])
        assert found.tolist() == [0.5 * (digit - 1) for digit in digits]

    def test_tq2_0(self, route: str) -> None:
        digits = [(i + i // 3) % 4 for i in range(256)]
        quants = [0] * 64
        for i, digit in enumerate(digits):
            quants[32 * (i // 128) + i % 32] |= digit << 2 * (i % 128 // 32)
        found = by_ember(packed("64Be", *quants, 2.0), TYPES_BY_NAME["TQ2_0"], ROUTES[route])
        assert found.tolist() == [2.0 * (digit - 1) for digit in digits]

    def test_iq4_nl(self, route: str) -> None:
        levels = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
        raw = packed("e16B", 0.5, *[i | (15 - i) << 4 for i in range(16)])
        expected = [level / 2 for level in levels + levels[::-1]]
        assert by_ember(raw, TYPES_BY_NAME["IQ4_NL"], ROUTES[route]).tolist() == expected

    def test_iq4_xs(self, route: str) -> None:
        """Scales 0, 17, 34, 51, 4, 21, 38, 55, less 32, on the level 1 (index 8) and -127 (index 0)."""
        scales = [17 * i % 64 for i in range(8)]
        upper = sum((scale >> 4) << 2 * i for i, scale in enumerate(scales))
        lower = [scales[2 * i] & 15 | (scales[2 * i + 1] & 15) << 4 for i in range(4)]
        found = by_ember(packed("eH4B128B", 0.5, upper, *lower, *[8] * 128), TYPES_BY_NAME["IQ4_XS"], ROUTES[route])
        assert found.tolist() == [0.5 * (s - 32) * level for s in scales for level in [1] * 16 + [-127] * 16]

    def test_mxfp4(self, route: str) -> None:
        """E2M1 has 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; an exponent of 128 doubles them."""
        raw = packed("B16B", 128, *[i | (15 - i) << 4 for i in range(16)])
        values = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0]
        values += [0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0]
        found = by_ember(raw, TYPES_BY_NAME["MXFP4"], ROUTES[route])
        assert found.tolist() == values + values[::-1]
        assert not np.signbit(found[found == 0]).any()

    def test_nvfp4(self, route: str) -> None:
        """Scales 1 (0x38), 1.125 (0x39), 2^-9 (0x01), 448 (0x7E) on E2M1's 6 and -0.5."""
        found = by_ember(packed("4B32B", 0x38, 0x39, 0x01, 0x7E, *[0x97] * 32), TYPES_BY_NAME["NVFP4"], ROUTES[route])
        expected = [[6 * scale] * 8 + [-0.5 * scale] * 8 for scale in (1, 1.125, 2**-9, 448)]
        assert found.reshape(4, 16).tolist() == expected

    def test_iq2_xxs(self, route: str) -> None:
        """The grid's points 0 and 1 are 8 x 8 and 43, 7 x 8; the scale 15 is (15 + 1/2) / 4; two minuses."""
        raw = packed("e8B56B", 1.0, 0, 1, 0, 0, *(15 << 28 | 0b11).to_bytes(4, "little"), *[0] * 56)
        found = by_ember(raw, TYPES_BY_NAME["IQ2_XXS"], ROUTES[route])
        assert found[:16].tolist() == [3.875 * value for value in [-8, -8, *[8] * 6, 43, *[8] * 7]]

    def test_iq2_xs_and_its_eighth_sign(self, route: str) -> None:
        """One stored minus brings the eighth with it, since their number is even."""
        raw = packed("e32H8B", 1.0, 1 << 9, *[0] * 31, 2, *[0] * 7)
        found = by_ember(raw, TYPES_BY_NAME["IQ2_XS"], ROUTES[route])
        assert found[:16].tolist() == [0.625 * value for value in [-8, *[8] * 6, -8, *[8] * 8]]
        assert found[16:].tolist() == [1.0] * 240

    def test_iq2_s(self, route: str) -> None:
        raw = packed("e32B32B8B8B", 1.0, 1, *[0] * 31, 0b10, *[0] * 31, *[0] * 8, 2, *[0] * 7)
        found = by_ember(raw, TYPES_BY_NAME["IQ2_S"], ROUTES[route])
        assert found[:8].tolist() == [0.625 * value for value in [43, -8, 8, 8, 8, 8, 8, 8]]

    def test_iq3_xxs(self, route: str) -> None:
        """Points 0 and 1 are 4 x 4 and 20, 4, 4, 4; the scale 3 is (3 + 1/2) / 2."""
        raw = packed("e64BI28B", 1.0, 0, 1, *[0] * 62, 3 << 28 | 0b11, *[0] * 28)
        found = by_ember(raw, TYPES_BY_NAME["IQ3_XXS"], ROUTES[route])
        assert found[:8].tolist() == [1.75 * value for value in [-4, -4, 4, 4, 20, 4, 4, 4]]

    def test_iq3_s(self, route: str) -> None:
        """Points 0 and 1 are 4 x 1 and 3, 1, 1, 1; the scale 2 is 1 + 2 x 2."""
        raw = packed("e64B8B32B4B", 0.5, 0, 1, *[0] * 62, *[0] * 8, 0b10, *[0] * 31, 2, 0, 0, 0)
        found = by_ember(raw, TYPES_BY_NAME["IQ3_S"], ROUTES[route])
        assert found[:8].tolist() == [2.5 * value for value in [1, -1, 1, 1, 3, 1, 1, 1]]

    def test_iq1_s(self, route: str) -> None:
        """Point 0 is 8 x -1, point 1 has a 1 in front; the scale 2 is 1 + 2 x 2; the second half is offset down."""
        raw = packed("e32B8H", 1.0, 0, 1, *[0] * 30, 2 << 12, 0x8000, *[0] * 6)
        found = by_ember(raw, TYPES_BY_NAME["IQ1_S"], ROUTES[route])
        assert found[:16].tolist() == [5 * value for value in [-0.875] * 8 + [1.125] + [-0.875] * 7]
        assert found[32:64].tolist() == [-1.125] * 32

    def test_iq1_m(self, route: str) -> None:
        """The scale 1.5 (0x3E00) in quarters; the second point of the first group is offset down; group scale 1 + 2."""
        scales = [0x0000 | 1, 0x0000, 0xE000, 0x3000]
        raw = packed("32B16B4H", 1, *[0] * 31, 0x80, *[0] * 15, *scales)
        found = by_ember(raw, TYPES_BY_NAME["IQ1_M"], ROUTES[route])
        assert found[:16].tolist() == [4.5 * value for value in [1.125] + [-0.875] * 7 + [-1.125] * 8]
        assert found[16:].tolist() == [1.5 * -0.875] * 240


def _fraction(digits: list[int]) -> int:
    """Base-3 digits, the first the most significant of five, as a fraction of 256, rounded up."""
    number = sum(digit * 3 ** (4 - i) for i, digit in enumerate(digits))
    return -(-number * 256 // 243)
