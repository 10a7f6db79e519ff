"""A model over seven symbols, and every output that it can have: what search features are held against."""

import itertools
import math
from functools import lru_cache

import torch

from transduce.config import preset
from transduce.models import LAST_CROSS, Tokens, build
from transduce.search import Request, SearchSettings, beam_search, score_targets

PAD, BEGIN, END, UNKNOWN = range(4)
SYMBOLS = (4, 5, 6)
SIZES = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 12, "d_ff": 20, "heads": 2, "vocab_size": 7}
SOURCE = Tokens(torch.tensor([[4, 5, 6, END], [6, END, 0, 0]]), torch.tensor([4, 2]))


def tiny(seed):
    """A model with random weights; ``seed`` says which."""
    torch.manual_seed(seed)
    model = build(preset("base", SIZES)).eval()
    model.embedding.weight.data *= 2  # sharper distributions: outputs of different lengths compete
    return model


shared = lru_cache(tiny)  # the same one for several tests, which change nothing in it


def settings(**changes):
    """A search that never writes the special symbols."""
    return SearchSettings(**{"begin_id": BEGIN, "end_id": END, "forbidden": (PAD, BEGIN, UNKNOWN), **changes})


def make_requests(source, limits, settings, numbers=None):
    """A request for each row of a batch."""
    numbers = range(len(limits)) if numbers is None else numbers
    rows = zip(source.ids.tolist(), source.lengths.tolist(), map(int, limits), numbers, strict=True)
    return [Request(ids[:length], limit, settings, number) for ids, length, limit, number in rows]


def at_once(requests):
    """A ``take`` that hands all of them over at its first call."""
    waiting = [list(requests), []]
    return lambda active: waiting.pop(0) if waiting else []


def search_all(model, source, limits, settings, numbers=None):
    """The outputs of sentences that are all searched from the beginning."""
    requests = make_requests(source, limits, settings, numbers)
    found = dict(beam_search(model, at_once(requests)))
    return [found[request] for request in requests]


def one(row):
    """One of the two sources."""
    return Tokens(SOURCE.ids[row : row + 1, : SOURCE.lengths[row]], SOURCE.lengths[row : row + 1])


def log_probability(model, row, ids):
    """Of one output, by forced scoring."""
    target, labels = torch.tensor([[BEGIN, *ids]]), torch.tensor([[*ids, END]])
    return score_targets(model, one(row), Tokens(target, torch.tensor([len(ids) + 1])), labels).item()


@lru_cache(maxsize=20)
def memory(model, row):
    """One of the two sources, encoded."""
    with torch.no_grad():
        return model.encode(one(row))


@lru_cache(maxsize=5000)  # beams of one model ask for the same ones
def following(model, row, ids):
    """The log-probability of every symbol behind these, by a pass without a state."""
    target = Tokens(torch.tensor([[BEGIN, *ids]]), torch.tensor([len(ids) + 1]))
    with torch.no_grad():
        logits = model.project(model.decode(memory(model, row), target).hidden)[-1]
    return torch.log_softmax(logits, -1).tolist()


def outputs(limit):
    """Every output of at most ``limit`` symbols, end symbol counted."""
    return [ids for length in range(limit) for ids in itertools.product(SYMBOLS, repeat=length)]


def best(model, row, limit, allowed, score=None):
    """The allowed outputs and their scores, best first, of all that there are."""
    score = score or (lambda ids, total: total / ((6 + len(ids)) / 6) ** 0.6)
    found = [(ids, score(ids, total)) for ids, total in everything(model, row, limit)]
    return sorted((each for each in found if allowed(each[0])), key=lambda each: -each[1])


@lru_cache(maxsize=20)  # tests of one model ask for the same ones
def everything(model, row, limit):
    """Every output of at most ``limit`` symbols and its log-probability."""
    every = outputs(limit)
    return [*zip(every, totals(model, row, every), strict=True)]


def totals(model, row, every):
    """The log-probabilities of many outputs, by one pass of forced scoring."""
    lengths = torch.tensor([len(ids) + 1 for ids in every])
    target, labels = (torch.zeros(len(every), int(lengths.max()), dtype=torch.long) for _ in range(2))
    for index, ids in enumerate(every):
        target[index, : len(ids) + 1] = torch.tensor([BEGIN, *ids])
        labels[index, : len(ids) + 1] = torch.tensor([*ids, END])
    source = Tokens(one(row).ids.expand(len(every), -1), one(row).lengths.expand(len(every)))
    return score_targets(model, source, Tokens(target, lengths), labels).tolist()


def contains(ids, phrase):
    """Whether the phrase stands in the output."""
    return any(ids[start : start + len(phrase)] == tuple(phrase) for start in range(len(ids) - len(phrase) + 1))


@lru_cache(maxsize=5000)
def attention(model, row, ids):
    """Mean over the heads of the last layer: [target, source], the end symbol last on both sides."""
    target = Tokens(torch.tensor([[BEGIN, *ids]]), torch.tensor([len(ids) + 1]))
    with torch.no_grad():
        (weights,) = model.decode(memory(model, row), target, attention=LAST_CROSS).attention.cross.values()
    return weights[0].mean(dim=0).tolist()


def shortfall(model, row, ids):
    """The coverage penalty of Wu et al. (2016) without its factor, as its formula stands."""
    columns = zip(*attention(model, row, ids), strict=True)
    return sum(math.log(min(sum(column), 1)) for column in columns)
