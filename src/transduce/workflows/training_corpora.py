"""The corpora of a training as its loop reads them: ids, by weights, tokenized anew where that is asked for."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from transduce.config import RunConfig
from transduce.data import Ids, Resegment, Stream
from transduce.text import BpeDropout, TokenizerPair
from transduce.training import Corpora
from transduce.workflows.encoding import StreamEncoder
from transduce.workflows.prepare import Prepared


def training_corpora(config: RunConfig, prepared: Prepared) -> Corpora:
    """What a training reads, as ids: the prepared store or a stream of what lies elsewhere, and dev."""
    weights = tuple(corpus.weight for corpus in config.data.train)
    resegment = _bpe_dropout(config, prepared.tokenizers) if config.tokenizer.bpe_dropout else None
    train = _stream(config, prepared) if prepared.train is None else prepared.train
    return Corpora(train, prepared.dev, prepared.tokenizers.special, weights, resegment)


def _stream(config: RunConfig, prepared: Prepared) -> Stream:
    encoder = StreamEncoder(config, prepared.tokenizers)
    return Stream(config.data, encoder, config.train.batch_tokens, config.train.seed)


def _bpe_dropout(config: RunConfig, tokenizers: TokenizerPair) -> Callable[[int], Resegment]:
    """For each epoch, the function that tokenizes its lines anew, a pure one of seed, epoch and row.

    A line that would outgrow the positions that the model learns stays as it is, as do all of a side that is no BPE.
    """
    share, seed, longest = config.tokenizer.bpe_dropout, config.train.seed, config.model.longest
    kinds = [side.kind for side in config.tokenizer.sides]
    source, target = (
        BpeDropout(tokenizer, share, 2 * seed + number) if kind == "bpe" else None
        for number, (tokenizer, kind) in enumerate(
            zip((tokenizers.source, tokenizers.target), (kinds * 2)[:2], strict=True)
        )
    )

    def segment(dropout: BpeDropout | None, lines: list[Ids], epoch: int, rows: NDArray[np.int64]) -> list[Ids]:
        if dropout is None:
            return lines
        anew = dropout.segment(lines, epoch, rows)
        return [new if longest is None or len(new) < longest else old for new, old in zip(anew, lines, strict=True)]

    return lambda epoch: (
        lambda sources, targets, rows: (segment(source, sources, epoch, rows), segment(target, targets, epoch, rows))
    )
