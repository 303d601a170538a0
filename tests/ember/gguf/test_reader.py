"""What a sound file says is what the reader returns: files by gguf-py's writer, and by hand."""

import os
import re
import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from ember.errors import GGUFError, InputError
from ember.gguf import StringArray, open_gguf
from tests.foundry import gguf_bytes as raw
from tests.foundry.gguf_bytes import Gguf, Tensor


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A file by gguf-py with every kind of value and a tensor of each shape."""
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("t.u8", 255)
    writer.add_int8("t.i8", -128)
    writer.add_uint16("t.u16", 65535)
    writer.add_int16("t.i16", -32768)
    writer.add_uint32("t.u32", 4294967295)
    writer.add_int32("t.i32", -2147483648)
    writer.add_uint64("t.u64", 2**64 - 1)
    writer.add_int64("t.i64", -(2**63))
    writer.add_float32("t.f32", 0.1)
    writer.add_float64("t.f64", 0.1)
    writer.add_bool("t.yes", True)
    writer.add_bool("t.no", False)
    writer.add_string("t.text", "كَتَبَ\n")
    writer.add_array("t.words", ["", "a", "كلمة", "b" * 1000])
    writer.add_array("t.ints", [1, -2, 3])
    writer.add_array("t.floats", [0.5, -1.5])
    writer.add_array("t.bools", [True, False, True])
    writer.add_tensor("one", np.arange(3, dtype=np.float32))
    writer.add_tensor("two", np.arange(6, dtype=np.float16).reshape(2, 3))
    writer.add_tensor("three", np.arange(24, dtype=np.float64).reshape(2, 3, 4))
    writer.add_tensor("four", np.arange(16, dtype=np.int32).reshape(2, 2, 2, 2))
    writer.add_tensor("blocks", np.arange(68, dtype=np.uint8).reshape(2, 34), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SCALARS = {
    "t.u8": ("UINT8", 255),
    "t.i8": ("INT8", -128),
    "t.u16": ("UINT16", 65535),
    "t.i16": ("INT16", -32768),
    "t.u32": ("UINT32", 4294967295),
    "t.i32": ("INT32", -2147483648),
    "t.u64": ("UINT64", 2**64 - 1),
    "t.i64": ("INT64", -(2**63)),
    "t.f32": ("FLOAT32", float(np.float32(0.1))),
    "t.f64": ("FLOAT64", 0.1),
    "t.yes": ("BOOL", True),
    "t.no": ("BOOL", False),
    "t.text": ("STRING", "كَتَبَ\n"),
    "general.architecture": ("STRING", "llama"),
}


@pytest.mark.parametrize("key", SCALARS)
def test_scalars_keep_value_and_type(written: Path, key: str) -> None:
    file = open_gguf(written)
    assert (file.metadata_type(key), file.metadata[key]) == SCALARS[key]
    assert type(file.metadata[key]) is type(SCALARS[key][1])


def test_arrays_of_numbers_are_read_only_numpy_arrays(written: Path) -> None:
    file = open_gguf(written)
    assert file.metadata["t.ints"].tolist() == [1, -2, 3]
    assert file.metadata["t.floats"].tolist() == [0.5, -1.5]
    assert file.metadata["t.bools"].tolist() == [True, False, True]
    assert file.metadata_type("t.ints") == "ARRAY[INT32]"
    with pytest.raises(ValueError, match="read-only"):
        file.metadata["t.ints"][0] = 5


def test_string_arrays_are_lazy_sequences_of_bytes(written: Path) -> None:
    words = open_gguf(written).metadata["t.words"]
    expected = [b"", b"a", "كلمة".encode(), b"b" * 1000]
    assert isinstance(words, StringArray)
    assert list(words) == expected
    assert [words[i] for i in range(-4, 4)] == expected + expected
    assert words[1:3] == expected[1:3]
    assert words[::-1] == expected[::-1]
    assert words == expected
    assert words != expected[:3]
    assert len(words) == 4
    assert b"a" in words
    with pytest.raises(IndexError):
        words[4]


def test_tensors_have_reversed_dimensions_and_the_written_values(written: Path) -> None:
    file = open_gguf(written)
    assert {name: (info.shape, info.type.name, info.nbytes) for name, info in file.tensors.items()} == {
        "one": ((3,), "F32", 12),
        "two": ((2, 3), "F16", 12),
        "three": ((2, 3, 4), "F64", 192),
        "four": ((2, 2, 2, 2), "I32", 64),
        "blocks": ((2, 32), "Q8_0", 68),
    }
    assert np.array_equal(file.view("one"), np.arange(3, dtype=np.float32))
    assert np.array_equal(file.view("two"), np.arange(6, dtype=np.float16).reshape(2, 3))
    assert np.array_equal(file.view("three"), np.arange(24, dtype=np.float64).reshape(2, 3, 4))
    assert np.array_equal(file.view("four"), np.arange(16, dtype=np.int32).reshape(2, 2, 2, 2))
    assert np.array_equal(file.raw("blocks"), np.arange(68, dtype=np.uint8))
    assert (file.tensor("blocks").row_bytes, file.tensor("blocks").size) == (34, 64)


def test_views_are_read_only_and_not_copies(written: Path) -> None:
    file = open_gguf(written)
    assert np.shares_memory(file.raw("one"), file.view("one"))
    for values in (file.raw("one"), file.view("one")):
        assert not values.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            values.flags.writeable = True


def test_a_quantised_tensor_has_no_view(written: Path) -> None:
    with pytest.raises(InputError, match="tensor 'blocks' is Q8_0, which NumPy cannot view"):
        open_gguf(written).view("blocks")


def test_an_absent_tensor_is_named(written: Path) -> None:
    with pytest.raises(GGUFError, match=r"tensor 'blk\.0\.x': not among the 5 tensors"):
        open_gguf(written).raw("blk.0.x")


def test_metadata_agree_with_gguf_py(written: Path) -> None:
    reader, file = gguf.GGUFReader(written), open_gguf(written)
    theirs = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    ours = {
        key: [one.decode() for one in value] if isinstance(value, StringArray) else value
        for key, value in file.metadata.items()
    }
    assert {k: np.asarray(v).tolist() for k, v in ours.items()} == {
        k: np.asarray(v).tolist() for k, v in theirs.items()
    }
    assert {t.name: (t.data_offset, t.n_bytes) for t in reader.tensors} == {
        info.name: (info.offset, info.nbytes) for info in file.tensors.values()
    }


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3_are_read(write, version: int) -> None:
    path = write(Gguf([raw.string("general.architecture", "llama")], version=version))
    assert open_gguf(path).version == version


@pytest.mark.parametrize("alignment", [8, 16, 32, 64, 1 << 20])
def test_values_do_not_depend_on_the_alignment(write, alignment: int) -> None:
    """G11: three 16-byte tensors written with several alignments read back identically."""
    payloads = [struct.pack("<4f", *range(i, i + 4)) for i in range(3)]
    tensors = [Tensor(f"t{i}", [4], raw.F32, payload) for i, payload in enumerate(payloads)]
    pairs = [raw.scalar("general.alignment", raw.UINT32, alignment)]
    file = open_gguf(write(Gguf(pairs, tensors, alignment=alignment)))
    assert [file.view(f"t{i}").tolist() for i in range(3)] == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    assert file.alignment == alignment
    assert all(info.offset % alignment == 0 for info in file.tensors.values())


def test_tensors_may_lie_in_any_order(write) -> None:
    tensors = [Tensor("b", [2], raw.F32, struct.pack("<2f", 3, 4), offset=32), Tensor("a", [2], raw.F32, b"", offset=0)]
    data = Gguf([], tensors).header()
    data += bytes(-len(data) % 32) + struct.pack("<2f", 1, 2) + bytes(24) + struct.pack("<2f", 3, 4)
    file = open_gguf(write(data))
    assert (file.view("a").tolist(), file.view("b").tolist()) == ([1, 2], [3, 4])
    assert list(file.tensors) == ["b", "a"]


def test_a_gap_wider_than_the_alignment_is_refused(write) -> None:
    """A type id changed to one of smaller blocks leaves such a gap, and would be read as other values."""
    tensors = [Tensor("a", [2], raw.F32, b"", offset=0), Tensor("b", [2], raw.F32, b"", offset=64)]
    data = Gguf([], tensors).header()
    data += bytes(-len(data) % 32) + bytes(72)
    with pytest.raises(GGUFError, match=r"tensor 'b': its data begin 56 bytes after those of 'a' end"):
        open_gguf(write(data))


def test_nested_arrays_within_the_limit_are_lists(write) -> None:
    inner = raw.array_header(raw.UINT16, 2) + struct.pack("<2H", 7, 8)
    file = open_gguf(write(Gguf([raw.pair("k", raw.ARRAY, raw.array_header(raw.ARRAY, 2) + inner + inner)])))
    assert [one.tolist() for one in file.metadata["k"]] == [[7, 8], [7, 8]]
    assert file.metadata_type("k") == "ARRAY[ARRAY[UINT16]]"


def test_bytes_that_are_not_utf8_stay_visible_in_values(write) -> None:
    file = open_gguf(write(Gguf([raw.string("general.name", b"caf\xe9"), raw.strings("words", [b"\xff"])])))
    assert file.metadata["general.name"] == "caf\\xe9"
    assert list(file.metadata["words"]) == [b"\xff"]


def test_each_part_is_mapped_once_however_often_it_is_opened(written: Path) -> None:
    files = [open_gguf(written) for _ in range(3)]
    maps = Path("/proc/self/maps").read_text()
    assert len(re.findall(re.escape(str(written)), maps)) == 1
    assert files[0].view("one").tolist() == [0, 1, 2]
    files.clear()
    assert str(written) not in Path("/proc/self/maps").read_text()


def test_a_view_outlives_the_file_it_came_from(written: Path) -> None:
    with open_gguf(written) as file:
        values = file.view("one")
    written.unlink()
    assert values.tolist() == [0, 1, 2]
    with pytest.raises(GGUFError, match="was closed; open it again"):
        file.raw("one")


def test_a_changed_file_is_noticed(written: Path) -> None:
    """G09: replaced, rewritten in place, truncated, gone."""
    content = written.read_bytes()
    file = open_gguf(written)
    assert file.unchanged()
    file.check_unchanged()
    for change in (_replace, _touch, _grow, Path.unlink):
        _restore(written, content)
        file = open_gguf(written)
        change(written)
        assert not file.unchanged()
        with pytest.raises(GGUFError, match=r"written\.gguf: file: model file changed during the run"):
            file.check_unchanged()


def _restore(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _replace(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes())
    found = path.stat()
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(path)


def _touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def test_128k_vocabulary_opens_in_the_promised_time(shared: Path) -> None:
    """The issue promises 0.3 s; some 0.03 s are measured, so this fails long before the promise is broken."""
    path = shared / "vocab" / "ggml-vocab-llama-bpe.gguf"
    took = []
    for _ in range(3):
        start = time.perf_counter()
        file = open_gguf(path)
        took.append(time.perf_counter() - start)
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 128256
    assert len(file.metadata["tokenizer.ggml.merges"]) == 280147
    assert min(took) < 0.3


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_vocabularies_agree_with_gguf_py(shared: Path, name: str) -> None:
    path = shared / "vocab" / f"ggml-vocab-{name}.gguf"
    file = open_gguf(path)
    tokens = gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"].contents()
    assert [token.decode() for token in file.metadata["tokenizer.ggml.tokens"]] == tokens


@pytest.mark.realmodel
def test_smollm2_opens_and_all_its_tensors_agree_with_gguf_py(smollm2: Path) -> None:
    file, reader = open_gguf(smollm2), gguf.GGUFReader(smollm2)
    assert len(file.tensors) == 272
    file.check_supported()
    for theirs in reader.tensors:
        ours = file.tensors[theirs.name]
        assert (ours.shape, ours.nbytes) == (tuple(reversed(theirs.shape.tolist())), theirs.n_bytes)
        assert np.array_equal(file.raw(theirs.name), theirs.data.reshape(-1).view(np.uint8))
