import hashlib
import logging
import sys
import warnings
from types import ModuleType

import pytest

from transduce.config import BadInputError, TransduceError
from transduce.evaluation import paired_bootstrap, score_with
from transduce.evaluation.comet import make_comet_scorer

SOURCES = ["a man", "a dog runs", "two"]
OUTPUTS = ["ein Mann", "ein Hund", ""]
REFERENCES = ["ein Mann", "ein Hund rennt", "zwei"]

# Lightning's log, which comet runs on, has its own way to standard error.
_LOUD = logging.getLogger("a library under comet")


class FakeModel:
    """Scores the share of the reference's words that the output has, by the interface of comet's ``CometModel``."""

    def __init__(self):
        self.calls = []

    def predict(
        self,
        samples,
        batch_size=16,
        gpus=1,
        devices=None,
        mc_dropout=0,
        progress_bar=True,
        accelerator="auto",
        num_workers=None,
        length_batching=True,
    ):
        self.calls.append((samples, progress_bar))
        _LOUD.warning("GPU available: False")
        warnings.warn("The 'predict_dataloader' does not have many workers", stacklevel=1)
        scores = [len(set(each["mt"].split())) / len(each["ref"].split()) for each in samples]
        # As comet's Prediction: a mapping whose keys are attributes too.
        return {"scores": scores, "system_score": sum(scores) / len(scores)}


@pytest.fixture
def comet(monkeypatch):
    """A module in the place of comet, with what was loaded and scored."""
    module = ModuleType("comet")
    module.model = FakeModel()
    module.loaded = []

    def load_from_checkpoint(checkpoint_path, reload_hparams=False, strict=False, local_files_only=False):
        module.loaded.append((checkpoint_path, local_files_only))
        logging.basicConfig(level=logging.INFO)  # comet does, as it is imported
        logging.warning("Encoder model frozen.")
        return module.model

    module.load_from_checkpoint = load_from_checkpoint
    monkeypatch.setitem(sys.modules, "comet", module)
    monkeypatch.setattr("transduce.evaluation.comet.version", {"unbabel-comet": "2.2.7"}.__getitem__)
    return module


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "models--Unbabel--wmt22-comet-da" / "snapshots" / "2760a22" / "checkpoints" / "model.ckpt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"weights")
    return path


def test_the_score_is_the_mean_over_lines(comet, checkpoint):
    score = score_with(make_comet_scorer(checkpoint, SOURCES), "comet", OUTPUTS, REFERENCES)
    # Two of two words, two of three, none of one.
    assert score.value == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert score.metric == "comet"


def test_it_reads_source_output_and_reference_and_downloads_nothing(comet, checkpoint):
    score_with(make_comet_scorer(checkpoint, SOURCES), "comet", OUTPUTS, REFERENCES)
    assert comet.loaded == [(str(checkpoint), True)]
    (samples, progress_bar) = comet.model.calls[0]
    assert samples[1] == {"src": "a dog runs", "mt": "ein Hund", "ref": "ein Hund rennt"}
    assert [len(samples), progress_bar] == [3, False]


def test_the_signature_names_the_model_and_its_digest(comet, checkpoint):
    signature = score_with(make_comet_scorer(checkpoint, SOURCES), "comet", OUTPUTS, REFERENCES).signature
    digest = hashlib.sha256(b"weights").hexdigest()[:12]
    assert {"lines:3", "model:Unbabel/wmt22-comet-da", f"sha256:{digest}", "version:2.2.7"} <= set(signature.split("|"))


def test_a_model_of_ones_own_goes_by_its_folder(comet, tmp_path):
    path = tmp_path / "mine" / "checkpoints" / "model.ckpt"
    path.parent.mkdir(parents=True)
    path.touch()
    score = score_with(make_comet_scorer(path, SOURCES), "comet", OUTPUTS, REFERENCES)
    assert "model:mine" in score.signature.split("|")


def test_two_outputs_are_compared_by_one_model(comet, checkpoint):
    scorers = {"comet": make_comet_scorer(checkpoint, SOURCES)}
    (comparison,) = paired_bootstrap(scorers, REFERENCES, REFERENCES, OUTPUTS, samples=30)
    assert comparison.ours.value == pytest.approx(1)
    assert comparison.theirs.value == pytest.approx(5 / 9)
    assert len(comet.loaded) == 1
    assert {"bs:30", "model:Unbabel/wmt22-comet-da"} <= set(comparison.signature.split("|"))


def test_comet_is_not_heard_and_leaves_the_log_alone(comet, checkpoint, monkeypatch, capfd):
    # As in a program of one's own: nobody has set up the log.
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(_LOUD, "handlers", [logging.StreamHandler()])
    level = logging.root.level
    with warnings.catch_warnings(record=True) as heard:
        score_with(make_comet_scorer(checkpoint, SOURCES), "comet", OUTPUTS, REFERENCES)
    assert capfd.readouterr() == ("", "")
    assert heard == []
    assert (logging.root.handlers, logging.root.level, logging.root.manager.disable) == ([], level, 0)


@pytest.mark.parametrize("name", [None, "no/such/model.ckpt"])
def test_no_model_says_how_to_fetch_one(comet, name, tmp_path):
    with pytest.raises(BadInputError, match=r"--comet-model|no such COMET checkpoint") as caught:
        make_comet_scorer(None if name is None else tmp_path / name, SOURCES)
    assert "comet-score -s" in str(caught.value)
    assert comet.loaded == []


def test_what_comet_cannot_load_is_named_with_its_reason(comet, checkpoint):
    def fail(*_, **__):
        raise Exception("hparams.yaml file is missing from snapshots.")  # noqa: TRY002 - what comet raises

    comet.load_from_checkpoint = fail
    with pytest.raises(BadInputError, match=r"model\.ckpt: comet cannot load it: hparams.yaml file is missing"):
        make_comet_scorer(checkpoint, SOURCES)


def test_without_the_extra_the_error_names_it(monkeypatch, checkpoint):
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(TransduceError, match=r"pip install 'transduce\[comet\]'") as caught:
        make_comet_scorer(checkpoint, SOURCES)
    assert not isinstance(caught.value, BadInputError)
