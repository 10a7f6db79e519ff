"""A shortlist beside a model: there and back, and what is wrong with it by name."""

import pytest
import torch

from transduce.bundle import load_shortlist, save_shortlist, save_tensors
from transduce.config import BadInputError, preset
from transduce.models import Shortlist

SIZES = {"vocab_size": 17, "source_vocab_size": 13, "tied_projection": False}
CONFIG = preset("base", SIZES)
GOOD = {
    "translations": torch.arange(13 * 3, dtype=torch.int32).view(13, 3) % 18 - 1,
    "frequent": torch.tensor([5, 16, 0], dtype=torch.int32),
}


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_there_and_back(model):
    file = save_shortlist(Shortlist(**GOOD, vocabulary=17), model)
    assert [each.name for each in sorted(model.iterdir())] == ["config.json", "shortlist.safetensors"]
    assert file == model / "shortlist.safetensors"
    found = load_shortlist(model, CONFIG)
    assert found.translations.equal(GOOD["translations"])
    assert found.frequent.equal(GOOD["frequent"])
    assert found.vocabulary == 17


def test_a_loaded_one_stays_whatever_is_written_over_its_file(model):
    file = save_shortlist(Shortlist(**GOOD, vocabulary=17), model)
    found = load_shortlist(model, CONFIG)
    file.write_bytes(b"")  # in place, as cp does it
    assert found.translations.equal(GOOD["translations"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"translations": GOOD["translations"][:-1]}, r"translations has shape \(12, 3\) .* asks for \(13, any\)"),
        ({"translations": GOOD["translations"].long()}, "translations is of type torch.int64, not of 32-bit integers"),
        ({"translations": GOOD["translations"] + 1}, "translations has symbol 17, of a vocabulary of 17"),
        ({"translations": GOOD["translations"] - 1}, "translations has symbol -2"),
        ({"frequent": GOOD["frequent"] - 1}, "frequent has symbol -1"),
        ({"frequent": GOOD["frequent"].view(3, 1)}, r"frequent has shape \(3, 1\)"),
        ({"frequent": None}, "frequent is missing"),
    ],
)
def test_another_models_or_damaged(model, change, message):
    tensors = {name: tensor for name, tensor in (GOOD | change).items() if tensor is not None}
    save_tensors(tensors, model / "shortlist.safetensors")
    with pytest.raises(BadInputError, match=rf"shortlist.safetensors: {message}.*: make it again with transduce short"):
        load_shortlist(model, CONFIG)


def test_none_or_no_such_file_format(model):
    with pytest.raises(BadInputError, match="no such file: make it with transduce shortlist RUN"):
        load_shortlist(model, CONFIG)
    (model / "shortlist.safetensors").write_bytes(b"no tensors")
    with pytest.raises(BadInputError, match="damaged"):
        load_shortlist(model, CONFIG)
