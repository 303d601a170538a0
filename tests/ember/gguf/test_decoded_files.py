"""Every type in whole files: seen by the reader and by `ember inspect`, and a tiny llama that runs in each."""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from click.testing import CliRunner
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

import ember
from ember.cli.inspect import inspect
from ember.errors import GGUFError, NumericsError
from ember.gguf import open_gguf
from ember.gguf.types import DECODED, QUANT_TYPES, TYPES_BY_NAME, QuantType
from ember.tolerances import TOLERANCES
from tests.foundry import damage
from tests.foundry.blocks import SCALES_AT
from tests.foundry.decoding import ROUTES, assert_same_bits, by_ember, random_blocks
from tests.foundry.files import dequantised, write_gguf
from tests.foundry.gguf_bytes import Gguf, Tensor
from tests.foundry.goldens import SITES, disagreement
from tests.foundry.tiny import tiny_llama

TYPES = sorted(DECODED)
ENGINES = ["reference", "fast"]
BLOCKS = [kind for kind in QUANT_TYPES.values() if kind.block_size > 1]
PROMPTS = [[300, 5, 17, 42, 42, 301, 9], [7]]
MATRIX = "blk.0.ffn_down.weight"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make the llama of a type, and beside it its copy decoded by gguf-py to F32, once each."""
    folder = tmp_path_factory.mktemp("types")

    def make(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            tiny_llama(path, n_layers=2, d=256, n_heads=4, n_kv=2, ffn=256, vocab=320, quant=name, tied=False)
            dequantised(path, folder / f"{name}-f32.gguf")
        return path

    return make


def plain(path: Path) -> Path:
    return path.with_name(f"{path.stem}-f32.gguf")


@pytest.mark.parametrize("name", TYPES)
def test_a_file_of_gguf_py_opens_and_decodes(name: str, tmp_path: Path) -> None:
    kind = TYPES_BY_NAME[name]
    stored = random_blocks(kind, 15, seed=6).reshape(5, -1)
    typed = stored.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
    path = write_gguf(
        tmp_path / "one.gguf", {}, [("before", np.zeros(3, np.float32), Type.F32), ("w", typed, Type[name])]
    )
    file = open_gguf(path)
    file.check_supported()
    assert file.tensors["w"].type == kind
    assert file.tensors["w"].shape == (5, 3 * kind.block_size)
    assert file.raw("w").tobytes() == stored.tobytes()
    with np.errstate(all="ignore"):
        expected = np.asarray(gguf.quants.dequantize(typed, Type[name]), np.float32)
    for route in ROUTES.values():
        assert_same_bits(by_ember(file.raw("w"), kind, route), expected.reshape(-1))


@pytest.mark.parametrize("name", TYPES)
def test_every_tensor_of_a_model_has_the_bits_of_its_decoded_copy(name: str, llama: Callable[[str], Path]) -> None:
    file, copy = open_gguf(llama(name)), open_gguf(plain(llama(name)))
    assert {info.type.name for info in file.tensors.values()} == {"F32", name}
    for tensor, info in file.tensors.items():
        for route in ROUTES.values():
            assert_same_bits(by_ember(file.raw(tensor), info.type, route), copy.view(tensor).reshape(-1))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", TYPES)
def test_hidden_states_are_those_of_the_decoded_copy(name: str, engine: str, llama: Callable[[str], Path]) -> None:
    """On either route, against the reference route on gguf-py's F32 copy, at every site, layer and position."""
    captures, expected = (
        ember.open(path, route=route).capture(tokens=PROMPTS, site=list(SITES), layers="all", position="all")
        for path, route in ((llama(name), engine), (plain(llama(name)), "reference"))
    )
    for site in SITES:
        worst = disagreement(captures[site], expected[site])
        assert worst.max() < TOLERANCES["golden_site"].bound, (site, worst.max())


@pytest.mark.parametrize("engine", ENGINES)
def test_many_types_in_one_file(engine: str, tmp_path: Path) -> None:
    """As makers of files mix them: the head and some matrices finer than the rest, every layer its own."""
    matrices = ("token_embd", "output.", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    names = iter(sorted(DECODED) * 2)
    mixed = {"": "F32"} | {f"blk.{layer}.{name}": next(names) for layer in (0, 1, 2) for name in matrices[2:]}
    mixed |= {name: next(names) for name in matrices[:2]}
    path = tiny_llama(tmp_path / "mixed.gguf", n_layers=3, d=256, n_heads=4, n_kv=2, ffn=256, vocab=320, quant=mixed)
    assert len({info.type for info in open_gguf(path).tensors.values()}) >= 20
    copy = dequantised(path, tmp_path / "plain.gguf")
    captures = ember.open(path, route=engine).capture(tokens=PROMPTS, site=list(SITES), layers="all")
    expected = ember.open(copy, route="reference").capture(tokens=PROMPTS, site=list(SITES), layers="all")
    for site in SITES:
        assert disagreement(captures[site], expected[site]).max() < TOLERANCES["golden_site"].bound, site


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", sorted(set(SCALES_AT) - {"F16"}))
def test_a_scale_that_is_no_number_is_named_when_the_model_runs(
    name: str, engine: str, llama: Callable[[str], Path], tmp_path: Path
) -> None:
    path = damage.with_scale(llama(name), tmp_path / "nan.gguf", MATRIX, damage.NAN)
    with pytest.raises(NumericsError, match="layer 0"):
        ember.open(path, route=engine).capture(tokens=PROMPTS)


@pytest.mark.parametrize("name", TYPES)
def test_inspect_shows_the_type(name: str, llama: Callable[[str], Path]) -> None:
    done = CliRunner().invoke(inspect, [str(llama(name))], catch_exceptions=False)
    assert done.exit_code == 0
    assert "not decoded by Ember" not in done.output
    (row,) = [line.split() for line in done.output.splitlines() if line.strip().startswith("blk.*.ffn_down.weight")]
    assert row[1:4] == [name, "[256,", "256]"]


@pytest.mark.parametrize(
    ("halves", "less", "rows"), [(3, 0, 2), (1, 0, 2), (6, 1, 1)], ids=["3/2 x 2", "1/2 x 2", "3 - 1"]
)
@pytest.mark.parametrize("kind", BLOCKS, ids=str)
def test_rows_that_are_no_whole_blocks_are_refused(kind: QuantType, halves: int, less: int, rows: int, write) -> None:
    """Also where all the rows together would fill whole blocks."""
    columns = kind.block_size // 2 * halves - less
    path = write(Gguf([], [Tensor("blk.7.odd", [columns, rows], kind.id, bytes(3 * kind.type_size))]))
    with pytest.raises(GGUFError) as caught:
        open_gguf(path)
    refusal = f"rows of {columns} columns cannot be {kind}, whose blocks hold {kind.block_size} values"
    assert f"tensor 'blk.7.odd': {refusal}" in str(caught.value)


def bits_of(path: Path) -> NDArray[np.uint32]:
    return open_gguf(path).view(MATRIX).view(np.uint32)


def test_the_copies_differ_from_type_to_type(llama: Callable[[str], Path]) -> None:
    """The comparison above would see a decoder that another type's took the place of."""
    seen = {bits_of(plain(llama(name))).tobytes() for name in TYPES}
    assert len(seen) >= len(TYPES) - 1, "TQ1_0 and TQ2_0 are quantised to the same values"
