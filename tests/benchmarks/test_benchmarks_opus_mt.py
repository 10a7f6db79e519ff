import pytest

from benchmarks import opus_mt
from tests.interop.marianmt import write
from tests.two_spm import sentences

pytest_plugins = ["two_spm"]


def test_a_folder_is_compared_with_its_library_and_ctranslate2(spm_folder, tmp_path, monkeypatch):
    for library in ("transformers", "ctranslate2"):
        pytest.importorskip(library, reason="what it is compared with is missing: pip install 'transduce[interop]'")
    write(tmp_path / "tiny", spm_folder)
    text = tmp_path / "text"
    text.write_text("\n".join(sentences("source", 5)))
    monkeypatch.setattr(opus_mt, "RESULT", tmp_path / "result.md")
    opus_mt.main([str(tmp_path / "tiny"), str(text), "--lines", "5", "--parts", "2", "--beam", "2", "--longest", "7"])
    page = (tmp_path / "result.md").read_text()
    assert page.startswith("# tiny, beam 2, 5 lines")
    assert "translations in float32: " in page
    assert "the least and the most of 2 parts" in page
    for row in ("transduce, int8", "transduce, float32", "CTranslate2, int8, 1 x 1", "generate, float32"):
        assert f"| {row} | " in page


def test_a_folder_of_its_kind_can_be_made(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is missing: pip install 'transduce[interop]'")
    for side in ("source", "target"):
        (tmp_path / side).write_text("\n".join(sentences(side, 300)))
    small = {
        name: 8 if name.endswith("heads") else 16 for name in opus_mt.SIZES if isinstance(opus_mt.SIZES[name], int)
    }
    small |= {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "scale_embedding": True,
    }
    monkeypatch.setattr(opus_mt, "SIZES", opus_mt.SIZES | small)
    opus_mt.make(tmp_path / "made", (tmp_path / "source", tmp_path / "target"), 90, 1009)
    assert {"source.spm", "target.spm", "vocab.json", "model.safetensors"} <= {
        each.name for each in (tmp_path / "made").iterdir()
    }
    assert opus_mt.json.loads((tmp_path / "made" / "vocab.json").read_text())["<pad>"] == 1008
