"""Files that lie: each is refused at once, by name, as GGUFError; nothing else ever comes out of the reader."""

import os
import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from ember.errors import EmberError, GGUFError, UnsupportedError
from ember.gguf import open_gguf
from tests.foundry import gguf_bytes as raw
from tests.foundry.gguf_bytes import Gguf, Tensor

F32X8 = struct.pack("<8f", *range(8))


def refusal(path: Path) -> str:
    """The message of the error that opening the file must raise: it starts with the file, and comes at once."""
    start = time.perf_counter()
    with pytest.raises(GGUFError) as caught:
        open_gguf(path)
    assert time.perf_counter() - start < 2
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def sample() -> Gguf:
    """A small sound file with each kind of thing in its header."""
    pairs = [
        raw.string("general.architecture", "llama"),
        raw.scalar("general.alignment", raw.UINT32, 32),
        raw.scalar("llama.block_count", raw.UINT32, 2),
        raw.numbers("scores", raw.FLOAT32, [1, 2, 3]),
        raw.strings("tokens", ["a", "كلمة", ""]),
        raw.scalar("flag", raw.BOOL, 1),
        raw.nested("nested", 2),
    ]
    tensors = [Tensor("a", [8], raw.F32, F32X8), Tensor("b", [32, 2], raw.Q8_0, bytes(68))]
    return Gguf(pairs, tensors)


class TestWhatIsNoModel:
    def test_missing_file(self, tmp_path: Path) -> None:
        assert refusal(tmp_path / "no.gguf") == "file: does not exist; give the path of a .gguf file"

    def test_directory_names_the_models_in_it(self, tmp_path: Path) -> None:
        (tmp_path / "m.gguf").touch()
        assert refusal(tmp_path) == "file: is a directory; name the .gguf file in it: m.gguf"

    def test_empty_file(self, write) -> None:
        assert "is empty" in refusal(write(b""))

    def test_fifo_is_refused_without_waiting(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.gguf")
        assert "is not a regular file" in refusal(tmp_path / "pipe.gguf")

    def test_device(self) -> None:
        assert "is not a regular file" in refusal(Path("/dev/zero"))

    @pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
    def test_unreadable_file(self, write) -> None:
        path = write(sample())
        path.chmod(0)
        assert "Permission denied" in refusal(path)

    def test_null_byte_in_the_path(self) -> None:
        with pytest.raises(GGUFError, match="cannot be opened"):
            open_gguf("a\0b.gguf")

    def test_path_too_long(self) -> None:
        assert "cannot be opened: File name too long" in refusal(Path("x" * 5000))

    def test_other_format(self, write) -> None:
        assert refusal(write(b"PK\x03\x04" + bytes(100))) == (
            "magic: b'PK\\x03\\x04' instead of b'GGUF': this is not a GGUF model (offset 0)"
        )

    def test_predecessor_is_named(self, write) -> None:
        assert "old ggjt format" in refusal(write(b"tjgg" + bytes(100)))

    def test_git_lfs_pointer(self, write) -> None:
        assert "b'vers' instead of b'GGUF'" in refusal(write(b"version https://git-lfs.github.com/spec/v1\n"))


class TestVersions:
    def test_version_1(self, write) -> None:
        assert refusal(write(Gguf(version=1))) == (
            "version: GGUF version 1; versions 2 and 3 are read: convert the model again (offset 4)"
        )

    @pytest.mark.parametrize("version", [0, 4, 2**31])
    def test_other_versions(self, write, version: int) -> None:
        assert f"GGUF version {version}" in refusal(write(Gguf(version=version)))

    def test_big_endian(self, write) -> None:
        assert "a big-endian GGUF (version 3)" in refusal(write(Gguf(version=3, order=">")))


class TestCounts:
    @pytest.mark.parametrize("count", [2**64 - 1, 2**62, 10**9])
    def test_more_tensors_than_bytes(self, write, count: int) -> None:
        assert f"tensor count: {count} tensors cannot fit into" in refusal(write(Gguf(n_tensors=count)))

    @pytest.mark.parametrize("count", [2**64 - 1, 10**9])
    def test_more_keys_than_bytes(self, write, count: int) -> None:
        assert f"key count: {count} keys cannot fit into" in refusal(write(Gguf(n_pairs=count)))

    def test_more_keys_than_any_model_has(self, write) -> None:
        data = Gguf(n_pairs=2**20).to_bytes() + bytes(2**24)
        assert "key count: 1048576 keys; at most 65536 are read" in refusal(write(data))

    def test_one_key_too_many_announced(self, write) -> None:
        path = write(Gguf([raw.string("general.architecture", "llama")], n_pairs=2))
        assert refusal(path).startswith("key count: 2 keys cannot fit") or "truncated" in refusal(path)

    @pytest.mark.parametrize("kind", [raw.UINT8, raw.FLOAT64, raw.STRING, raw.ARRAY])
    @pytest.mark.parametrize("length", [2**64 - 1, 2**61, 10**9])
    def test_longer_array_than_the_file(self, write, kind: int, length: int) -> None:
        data = Gguf([raw.pair("a.b", raw.ARRAY, raw.array_header(kind, length))]).to_bytes() + bytes(100)
        assert f"key 'a.b': {length} " in refusal(write(data))

    def test_huge_claims_allocate_nothing(self, write) -> None:
        path = write(Gguf([raw.pair("a", raw.ARRAY, raw.array_header(raw.UINT8, 2**40))]))
        tracemalloc.start()
        refusal(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**20


class TestStrings:
    def test_g03_string_longer_than_the_file(self, write) -> None:
        path = write(Gguf([raw.pair("k", raw.STRING, raw.text("", length=2**62))]))
        assert refusal(path) == (
            f"key 'k': a string of {2**62} bytes, 0 are left: the file looks truncated; download or copy it again "
            "(offset 37)"
        )

    @pytest.mark.parametrize("length", [2**62, 2**63, 2**64 - 1, 2**64 - 8, 5])
    def test_string_in_an_array_longer_than_the_file(self, write, length: int) -> None:
        items = raw.text("a") + raw.text("bc", length=length)
        path = write(Gguf([raw.pair("k", raw.ARRAY, raw.array_header(raw.STRING, 2) + items)]))
        assert f"key 'k', string 1 of 2: a string of {length} bytes, 2 are left" in refusal(path)

    def test_string_in_the_middle_of_an_array_leaves_the_file(self, write) -> None:
        items = raw.text("a", length=2**40) + raw.text("b") * 50
        path = write(Gguf([raw.pair("k", raw.ARRAY, raw.array_header(raw.STRING, 51) + items)]))
        assert f"key 'k', string 0 of 51: a string of {2**40} bytes" in refusal(path)

    def test_long_key(self, write) -> None:
        path = write(Gguf([raw.string("k" * 65537, "")]))
        assert "key 0: a string of 65537 bytes; at most 65536 are expected here" in refusal(path)

    def test_key_of_the_greatest_length(self, write) -> None:
        assert len(open_gguf(write(Gguf([raw.string("k" * 65536, "v")]))).metadata) == 1

    def test_key_not_utf8(self, write) -> None:
        assert "key 0: the name b'\\xff' is not UTF-8" in refusal(write(Gguf([raw.string(b"\xff", "")])))

    def test_control_characters_of_a_key_are_escaped(self, write) -> None:
        path = write(Gguf([raw.string("\x1b[2J", "")] * 2))
        assert "key '\\x1b[2J': the key stands twice" in refusal(path)

    def test_long_names_are_shortened_in_messages(self, write) -> None:
        assert len(refusal(write(Gguf([raw.string("k" * 60000, "")] * 2)))) < 300


class TestNesting:
    @pytest.mark.parametrize("depth", [5, 3000, 100_000])
    def test_g04_deep_arrays(self, write, depth: int) -> None:
        assert "key 'deep': arrays nest deeper than 4 levels" in refusal(write(Gguf([raw.nested("deep", depth)])))

    def test_more_strings_than_any_vocabulary(self, write) -> None:
        path = write(Gguf([raw.pair("k", raw.ARRAY, raw.array_header(raw.STRING, 2**24 + 1))]))
        os.truncate(path, 8 * (2**24 + 100))  # empty strings, as a hole on disk
        assert "key 'k': 16777217 strings in arrays; at most 16777216 are read" in refusal(path)

    def test_many_arrays_in_arrays(self, write) -> None:
        inner = raw.array_header(raw.ARRAY, 1000) + raw.array_header(raw.UINT8, 0) * 1000
        path = write(Gguf([raw.pair("wide", raw.ARRAY, raw.array_header(raw.ARRAY, 100) + inner * 100)]))
        assert "arrays inside arrays; at most" in refusal(path)


class TestValues:
    @pytest.mark.parametrize("kind", [13, 255, 2**32 - 1])
    def test_unknown_value_type(self, write, kind: int) -> None:
        assert f"key 'k': value type {kind}; known are 0 to 12" in refusal(write(Gguf([raw.pair("k", kind, bytes(8))])))

    def test_unknown_item_type(self, write) -> None:
        path = write(Gguf([raw.pair("k", raw.ARRAY, raw.array_header(99, 0))]))
        assert "key 'k': value type 99" in refusal(path)

    def test_bool_other_than_0_and_1(self, write) -> None:
        assert "key 'k': a BOOL of 2; 0 or 1 is expected" in refusal(write(Gguf([raw.pair("k", raw.BOOL, b"\x02")])))

    def test_bool_in_an_array(self, write) -> None:
        assert "a BOOL of 7" in refusal(write(Gguf([raw.numbers("k", raw.BOOL, [1, 7])])))

    def test_g18_absurd_numbers_are_well_formed(self, write) -> None:
        """The reader returns them as they are; whoever sizes something by them refuses."""
        pairs = [
            raw.scalar("llama.context_length", raw.UINT32, 4294967295),
            raw.scalar("llama.rope.freq_base", raw.FLOAT32, float("nan")),
            raw.scalar("llama.block_count", raw.UINT32, 2**31 - 1),
        ]
        found = open_gguf(write(Gguf(pairs))).metadata
        assert found["llama.context_length"] == 4294967295
        assert found["llama.rope.freq_base"] != found["llama.rope.freq_base"]


class TestNames:
    def test_g12_key_twice(self, write) -> None:
        pairs = [raw.scalar("llama.block_count", raw.UINT32, n) for n in (2, 4)]
        assert "key 'llama.block_count': the key stands twice" in refusal(write(Gguf(pairs)))

    def test_g12_tensor_twice(self, write) -> None:
        tensors = [Tensor("output_norm.weight", [8], raw.F32, F32X8)] * 2
        assert "tensor 'output_norm.weight': the tensor stands twice" in refusal(write(Gguf([], tensors)))

    def test_g12_empty_key(self, write) -> None:
        assert "key 0: the name is empty" in refusal(write(Gguf([raw.string("", "v")])))

    def test_empty_tensor_name(self, write) -> None:
        tensors = [Tensor("", [8, 2], raw.F32, F32X8 * 2)]
        assert "tensor 0: the name is empty" in refusal(write(Gguf([], tensors)))


class TestAlignment:
    @pytest.mark.parametrize("value", [0, 1, 4, 13, 33, 2**21, 2**30, 2**32 - 1])
    def test_g11_not_a_power_of_two_in_range(self, write, value: int) -> None:
        path = write(Gguf([raw.scalar("general.alignment", raw.UINT32, value)]))
        assert f"key 'general.alignment': is {value}; a power of two from 8 to 1048576" in refusal(path)

    @pytest.mark.parametrize("kind", [raw.INT32, raw.UINT64, raw.UINT16, raw.FLOAT32])
    def test_g11_stored_as_another_type(self, write, kind: int) -> None:
        path = write(Gguf([raw.scalar("general.alignment", kind, 32)]))
        assert "key 'general.alignment': stored as" in refusal(path)
        assert "UINT32 is expected" in refusal(path)

    def test_stored_as_string(self, write) -> None:
        assert "stored as STRING" in refusal(write(Gguf([raw.string("general.alignment", "32")])))

    def test_tensor_off_the_alignment(self, write) -> None:
        path = write(Gguf([], [Tensor("a", [8], raw.F32, F32X8 * 2, offset=16)]))
        assert "tensor 'a': data offset 16 is not a multiple of the alignment 32" in refusal(path)


class TestShapes:
    def test_g05_product_of_dimensions_wraps(self, write) -> None:
        """NumPy's int64 product of these is 4, which the payload would satisfy."""
        path = write(Gguf([], [Tensor("big", [4194305, 4194305, 211106198978564], raw.F32, F32X8)]))
        message = refusal(path)
        assert "tensor 'big': needs bytes up to" in message
        assert "its shape [211106198978564, 4194305, 4194305] is larger than the file" in message

    def test_g05_greatest_dimension(self, write) -> None:
        path = write(Gguf([], [Tensor("big", [2**64 - 1, 2], raw.F32, F32X8)]))
        assert f"its shape [2, {2**64 - 1}] is larger than the file" in refusal(path)

    @pytest.mark.parametrize("dims", [[0], [8, 0], [0, 8], [8, 1, 1, 0]])
    def test_g07_zero_dimension(self, write, dims: list[int]) -> None:
        path = write(Gguf([], [Tensor("blk.0.attn_norm.weight", dims, raw.F32, F32X8)]))
        assert f"tensor 'blk.0.attn_norm.weight': has dimensions {dims}; each must be at least 1" in refusal(path)

    @pytest.mark.parametrize(("dims", "n_dims"), [([], 0), ([1] * 5, 5), ([8], 2**32 - 1)])
    def test_number_of_dimensions(self, write, dims: list[int], n_dims: int) -> None:
        tensors = [Tensor("a", dims, raw.F32, F32X8, n_dims=n_dims)]
        assert f"tensor 'a': has {n_dims} dimensions; 1 to 4 are expected" in refusal(write(Gguf([], tensors)))

    @pytest.mark.parametrize(
        ("kind", "name", "columns", "block"),
        [(raw.Q4_K, "Q4_K", 100, 256), (raw.Q4_K, "Q4_K", 896, 256), (raw.Q8_0, "Q8_0", 48, 32)],
    )
    def test_g16_rows_that_blocks_cannot_fill(self, write, kind: int, name: str, columns: int, block: int) -> None:
        path = write(Gguf([], [Tensor("w", [columns, 256], kind, bytes(2**18))]))
        assert f"tensor 'w': rows of {columns} columns cannot be {name}, whose blocks hold {block} values" in refusal(
            path
        )

    def test_overlap(self, write) -> None:
        tensors = [Tensor("a", [16], raw.F32, F32X8 * 2), Tensor("b", [8], raw.F32, F32X8, offset=32)]
        assert "tensor 'b': its data overlap those of 'a', which end at" in refusal(write(Gguf([], tensors)))

    def test_same_data_for_two_tensors(self, write) -> None:
        tensors = [Tensor("a", [8], raw.F32, F32X8), Tensor("b", [8], raw.F32, b"", offset=0)]
        assert "overlap" in refusal(write(Gguf([], tensors)))

    def test_unknown_types_overlap_too(self, write) -> None:
        tensors = [Tensor("a", [8], 250, F32X8), Tensor("b", [8], 250, b"", offset=0)]
        assert "overlap" in refusal(write(Gguf([], tensors)))


class TestTruncation:
    """G08: found at open, the tensor named, with what is needed and what is there."""

    def test_last_byte_missing(self, write) -> None:
        data = sample().to_bytes()
        message = refusal(write(data[:-1]))
        assert f"tensor 'b': needs bytes up to {len(data)}, the file has {len(data) - 1}:" in message
        assert "the file looks truncated" in message

    @pytest.mark.parametrize("tenth", range(10))
    def test_ten_places_of_a_larger_file(self, write, tenth: int) -> None:
        tensors = [Tensor(f"blk.{i}.w", [256], raw.F32, bytes(1024)) for i in range(64)]
        data = Gguf([raw.strings("tokens", ["token"] * 1000)], tensors).to_bytes()
        assert "truncated" in refusal(write(data[: 24 + (len(data) - 24) * tenth // 10]))

    @pytest.mark.parametrize("offset", [2**40, 2**64 - 32, 2**63])
    def test_offset_beyond_the_file(self, write, offset: int) -> None:
        """gguf-py wraps around at 2**64 - 32 and returns the header as weights."""
        path = write(Gguf([], [Tensor("w", [8], raw.F32, F32X8, offset=offset)]))
        message = refusal(path)
        assert "tensor 'w': needs bytes up to" in message
        assert "the file looks truncated" in message

    def test_unknown_type_beyond_the_file(self, write) -> None:
        assert "truncated" in refusal(write(Gguf([], [Tensor("w", [8], 250, b"", offset=2**40)])))

    def test_tensors_but_no_data_at_all(self, write) -> None:
        assert "truncated" in refusal(write(Gguf([], [Tensor("w", [8], raw.F32)])))

    def test_every_length_of_a_small_file(self, tmp_path: Path) -> None:
        data = sample().to_bytes()
        path = tmp_path / "cut.gguf"
        for length in range(len(data)):
            path.write_bytes(data[:length])
            message = refusal(path)
            assert "truncated" in message or "is empty" in message or "overlap" in message

    def test_the_whole_file_opens(self, write) -> None:
        assert list(open_gguf(write(sample())).tensors) == ["a", "b"]


class TestUnknownTypes:
    """G15: a file with types that cannot be decoded can be looked at, and is refused before it runs."""

    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            (36, "IQ4_NL_4_4"),
            (37, "IQ4_NL_4_8"),
            (38, "IQ4_NL_8_8"),
            (31, "Q4_0_4_4"),
            (33, "Q4_0_8_8"),
            (4, "Q4_2"),
            (5, "Q4_3"),
            (250, "unknown type 250"),
            (2**32 - 1, "unknown type 4294967295"),
        ],
    )
    def test_of_unknown_size(self, write, kind: int, name: str) -> None:
        file = open_gguf(write(Gguf([], [Tensor("ok", [8], raw.F32, F32X8), Tensor("w.x", [32], kind, bytes(64))])))
        assert file.tensors["w.x"].nbytes == 0
        assert not file.tensors["w.x"].type.known_size
        for attempt in (file.check_supported, lambda: file.raw("w.x")):
            with pytest.raises(UnsupportedError) as caught:
                attempt()
            assert f"type id {kind}" in str(caught.value)
            assert name in str(caught.value)
            assert "'w.x'" in str(caught.value)
            assert "supported types: F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K," in str(caught.value)

    def test_known_but_not_decoded_types_are_listed_with_counts(self, write) -> None:
        tensors = [Tensor(f"blk.{i}.x", [32], 9, bytes(40)) for i in range(3)] + [Tensor("y", [256], 15, bytes(292))]
        file = open_gguf(write(Gguf([], tensors)))
        assert file.raw("y").size == 292
        with pytest.raises(UnsupportedError) as caught:
            file.check_supported()
        assert "4 of 4 tensors" in str(caught.value)
        assert "Q8_1 (type id 9), 3 tensors: 'blk.0.x', 'blk.1.x', 'blk.2.x'" in str(caught.value)
        assert "Q8_K (type id 15), 1 tensors: 'y'" in str(caught.value)


def opens_or_refuses(path: Path) -> None:
    try:
        file = open_gguf(path)
    except EmberError:
        return
    for name, info in file.tensors.items():
        if info.type.known_size:
            assert file.raw(name).size == info.nbytes


def test_every_byte_of_the_header_changed(tmp_path: Path) -> None:
    data = sample().to_bytes()
    path = tmp_path / "changed.gguf"
    for place in range(len(sample().header())):
        for value in (0, 0xFF, data[place] ^ 1):
            path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            opens_or_refuses(path)


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_of_the_header(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data, size = sample().to_bytes(), len(sample().header())
    path = tmp_path / "fuzz.gguf"
    for _ in range(100):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 8)):
            place, width = rng.randrange(size), rng.choice((1, 1, 4, 8))
            changed[place : place + width] = rng.randbytes(width)
        path.write_bytes(changed)
        opens_or_refuses(path)
