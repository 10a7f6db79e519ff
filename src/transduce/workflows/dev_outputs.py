"""Dev translated and scored on the way of a training."""

from collections.abc import Callable
from itertools import islice
from typing import Final

from transduce.bundle import Bundle
from transduce.config import METRICS, MetricKey, Precision, RunConfig
from transduce.evaluation import corpus_score
from transduce.inference import Translator
from transduce.models import TrainableModel
from transduce.training import DevOutputs, Sample
from transduce.workflows.evaluate import parse_all, translate_all
from transduce.workflows.examples import full_pairs, read_corpus_examples

_SAMPLES: Final = 5  # sentences of dev whose outputs each measurement keeps


def translate_dev(
    config: RunConfig, precision: Precision, bundle: Callable[[TrainableModel], Bundle]
) -> Callable[[TrainableModel], DevOutputs]:
    """A function that translates dev greedily and scores the text: good enough to rank checkpoints, and quick.

    It is scored by BLEU (a treebank by its brackets), and by the metric that decides which checkpoint is the best where
    that is another of outputs. The first few are kept to look at. What is no pair is left out, as it is of dev's loss.
    """
    usual: MetricKey = "bleu" if config.data.dev.trees is None else "brackets"
    wanted = dict.fromkeys((usual, config.train.best_metric))
    makers = {
        key: parse_all if METRICS[key].needs == "trees" else translate_all
        for key in wanted
        if METRICS[key].needs in {"outputs", "trees"}
    }
    dev = full_pairs(read_corpus_examples(config.data.dev, config.data.folder))

    def translate(model: TrainableModel) -> DevOutputs:
        translator = Translator(bundle(model), precision, next(model.parameters()).device)
        # A model that has just begun to learn finds no end: no reason to warn.
        outputs = {make: make(translator, dev, beam_size=1, first_number=None) for make in {*makers.values()}}
        scores: dict[str, float] = {
            key: corpus_score(key, outputs[make], dev.references_of(key)).value for key, make in makers.items()
        }
        first = islice(zip(dev.sources, dev.references_of(usual), outputs[makers[usual]], strict=True), _SAMPLES)
        return DevOutputs(scores, [Sample(*each) for each in first])

    return translate
