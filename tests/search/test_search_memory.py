"""Memory that is too small for all is taken by fewer at a time, and one that is too large for it fails alone."""

import weakref
from functools import cache

import pytest
import torch

from tests.search.test_search_queue import NUMBERS, SOURCES, Waiting, ready, search
from tests.sparing import one_each
from transduce.models import NO_ATTENTION
from transduce.search import TooLittleMemory

WAYS = {"greedy": {"beam_size": 1}, "two best": {"n_best": 2}, "one best": {}}
BEGINNING, STEPPING = "beginning", "stepping"


class Small:
    """A model whose memory is enough for so many source symbols at a time, padding and all."""

    def __init__(self, model, symbols, where, error):
        self.model, self.symbols, self.where, self.error, self.failed = model, symbols, where, error, 0
        for verb in ("decode", "project", "forward", "start"):
            setattr(self, verb, getattr(model, verb))

    def look(self, symbols):
        if symbols > self.symbols:
            self.failed += 1
            raise self.error

    def encode(self, source):
        if self.where == BEGINNING:
            self.look(source.ids.numel())
        return self.model.encode(source)

    def step(self, state, tokens, *, attention=NO_ATTENTION):
        if self.where == STEPPING:
            sentences = len(tokens) // state.beam
            self.look(sentences * (state.source if hasattr(state, "source") else state.memory_mask().real.shape[1]))
        return self.model.step(state, tokens, attention=attention)


@cache
def found_at_once(way):
    """What a search finds that has memory for all."""
    return search(ready("plain"), WAYS[way], Waiting(len(SOURCES)))


ERRORS = {
    "Python": MemoryError(),
    "torch": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes"),
}


@pytest.mark.parametrize("way", ["greedy", "two best"])
@pytest.mark.parametrize(("error", "where"), [*one_each(ERRORS, [BEGINNING, STEPPING])])
def test_all_are_found_in_smaller_groups(way, error, where):
    whole, model = found_at_once(way), Small(ready("plain"), 61, where, ERRORS[error])
    found = search(model, WAYS[way], Waiting(len(SOURCES)))
    assert model.failed > 1
    assert sorted(found) == NUMBERS
    for number in NUMBERS:
        assert [each.ids for each in found[number]] == [each.ids for each in whole[number]]
        scores = [each.score for each in whole[number]]
        assert [each.score for each in found[number]] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize(("room", "where"), [*one_each(["1", "3", str(len(SOURCES))], [STEPPING, BEGINNING])])
def test_what_is_too_large_alone_fails_alone(where, room):
    """Two sources are of 24 and 30 symbols with the end symbol, and 20 fit in."""
    whole = found_at_once("one best")
    found = search(Small(ready("plain"), 20, where, MemoryError("no room")), {}, Waiting(int(room)))
    assert sorted(found) == NUMBERS
    failed = [number for number, outcome in found.items() if isinstance(outcome, TooLittleMemory)]
    assert sorted(failed) == [number for number, source in zip(NUMBERS, SOURCES, strict=True) if len(source) + 1 > 20]
    assert found[failed[0]] == TooLittleMemory("no room")
    for number in set(NUMBERS) - set(failed):
        assert [each.ids for each in found[number]] == [each.ids for each in whole[number]]


def test_other_errors_stay_errors():
    with pytest.raises(RuntimeError, match="shapes"):
        search(Small(ready("plain"), 0, BEGINNING, RuntimeError("shapes differ")), {}, Waiting(3))


def test_native_models_begin_anew_too():
    """Their state is changed in place: what is under way when memory ends begins at its beginning."""
    whole = search(ready("float32"), {"n_best": 2}, Waiting(len(SOURCES)))
    found = search(Small(ready("float32"), 61, STEPPING, MemoryError()), {"n_best": 2}, Waiting(len(SOURCES)))
    assert found == whole


def test_tensors_of_a_failed_round_are_gone_before_the_next():
    """Else memory would be smaller each time."""
    alive = []

    class Heavy(Small):
        def encode(self, source):
            memory = super().encode(source)
            alive[:] = [each for each in alive if each() is not None]
            alive.append(weakref.ref(memory.hidden))
            return memory

    search(Heavy(ready("plain"), 61, STEPPING, MemoryError()), {"beam_size": 1}, Waiting(len(SOURCES)))
    assert len(alive) <= 2
    assert torch.is_inference_mode_enabled() is False
