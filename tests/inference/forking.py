"""A program that uses a Translator, forks, and uses it in the child: what ``test_inference_fork.py`` runs.

python forking.py fork|multiprocessing
"""

import multiprocessing
import os
import sys

import torch

from transduce.bundle import Bundle
from transduce.config import GenerationConfig, TransformerConfig
from transduce.inference import Translator
from transduce.models import build
from transduce.text import TokenizerPair, learn_tokenizer

WORDS = ["bamo", "dulu", "fepi", "gozu", "kari", "luso", "wemo"]
ONE = ["bamo dulu fepi"]
MANY = [" ".join(WORDS[first : first + length]) for first in range(3) for length in range(1, 8)]


def make(kind: str) -> Bundle:
    tokenizer = learn_tokenizer("bpe", MANY, 300)
    # So large that PyTorch shares its operations among threads.
    config = TransformerConfig(
        vocab_size=tokenizer.vocab_size,
        d_model=256,
        heads=2,
        d_ff=1024,
        encoder_layers=1,
        decoder_layers=1,
        positions="relative" if kind == "plain" else "sinusoidal",
    )
    torch.manual_seed(3)
    return Bundle(build(config).eval(), TokenizerPair.of(tokenizer), GenerationConfig(max_extra_length=3))


def use(translator: Translator) -> list[object]:
    written = [each.text for texts in (ONE, MANY) for each in translator.translate(texts, first_number=None)]
    looked = translator.translate(ONE, return_alignment=True, first_number=None)[0].alignment
    return [written, looked, [round(score, 3) for score in translator.score(MANY, MANY)]]


def check(translator: Translator, bundle: Bundle, expected: list[object]) -> None:
    assert use(translator) == expected, "the parent's translator"
    assert use(Translator(bundle, "float32")) == expected, "one that the child makes"
    assert use(translator) == expected, "again"


def in_a_fork(how: str, translator: Translator, bundle: Bundle, expected: list[object]) -> int:
    """The status of a child that checks."""
    if how == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=check, args=(translator, bundle, expected))
        process.start()
        process.join()
        return process.exitcode or 0
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check(translator, bundle, expected)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(how: str) -> None:
    torch.set_num_threads(2)
    for kind in ("packed", "plain"):
        bundle = make(kind)
        translator = Translator(bundle, "float32")
        expected = use(translator)
        assert in_a_fork(how, translator, bundle, expected) == 0, f"the child, {kind}"
        with translator.keep_searching():
            assert use(translator) == expected, f"the running search, {kind}"
            assert in_a_fork(how, translator, bundle, expected) == 0, f"the child, whose parent's search runs, {kind}"
            assert use(translator) == expected, f"the running search, which goes on, {kind}"
        assert use(translator) == expected, f"the parent, which goes on, {kind}"


if __name__ == "__main__":
    main(*sys.argv[1:])
