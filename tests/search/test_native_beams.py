"""Both loops of the search, in Python and in C++, are one: ids, scores and the order of everything, to the last bit."""

import math
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.test_search_queue import SIZES, WAYS, Waiting, ready, search
from tests.sparing import one_each
from tests.tiny_search import BEGIN, END, SOURCE, make_requests
from transduce.config import TransduceError
from transduce.config.splitmix import mix
from transduce.kernels import READS_NOTHING, AllowedTokens, Asked, Choices, FlatBeams, LogitColumns, join_allowed
from transduce.models import NO_ATTENTION, Shortlist, Step
from transduce.search import (
    Cancelled,
    LengthPenalty,
    NoRepeat,
    Prefixes,
    Recorder,
    Request,
    Restriction,
    Sampling,
    SearchSettings,
    beam,
    beam_search,
)
from transduce.search.native_beams import NativeBeams

PLAIN = SearchSettings(BEGIN, END, (0, 1, 3), n_best=2)


def fold(read, tokens):
    """Numbers for what rows have read, and one more token each."""
    return read * 1_000_003 + tokens


@dataclass(frozen=True)
class Reading:
    """A state that knows what every row has read by a number."""

    rows: torch.Tensor
    beam: int
    allowed: AllowedTokens | None

    def reorder(self, rows):
        return replace(self, rows=self.rows[rows])

    def release(self, finished):
        staying = (~finished).nonzero().squeeze(1)
        rows = self.rows.view(-1, self.beam)[staying].flatten()
        return replace(self, rows=rows, allowed=self.allowed and self.allowed.keep(staying))

    def admit(self, other):
        rows = torch.cat([self.rows, other.rows])
        return replace(self, rows=rows, allowed=join_allowed(self.allowed, other.allowed))


class Given:
    """A model whose logits follow from a source and what has been written; with few ``levels``, many are equal."""

    def __init__(self, seed, vocabulary, levels, dtype=torch.float32):
        self.symbols = torch.arange(vocabulary) + seed * 1009
        self.levels = torch.tensor(levels, dtype=dtype)
        self.steps, self.read = [], []
        self.decode = self.project = self.forward = lambda *_: None  # no search asks for them

    def encode(self, source, *, attention=NO_ATTENTION):
        read = torch.zeros(len(source.ids), dtype=torch.long)
        for column in source.ids.T:
            read = fold(read, column)
        return read

    def start(self, memory, beam, allowed=None):
        return Reading(memory.repeat_interleave(beam), beam, allowed)

    def step(self, state, tokens, *, attention=NO_ATTENTION):
        self.steps.append(len(tokens) - tokens.tolist().count(READS_NOTHING))
        self.read.append(tokens.tolist())
        rows = fold(state.rows, tokens)
        columns = None if state.allowed is None else LogitColumns.whole(state.allowed)
        return Step(self.logits(rows), {}, replace(state, rows=rows), columns)

    def logits(self, rows):
        words = (rows.unsqueeze(1) * 7919 + self.symbols).numpy()
        mix(words)
        return self.levels[torch.from_numpy(words) % len(self.levels)]


class Arriving:
    """Hands requests over, so many at a time at most; in one of its rounds some are cancelled."""

    def __init__(self, requests, room, cancel_at=None):
        self.waiting, self.room, self.cancel_at = list(requests), room, cancel_at
        self.active = []

    def __call__(self, active):
        self.active.append([each.number for each in active])
        if len(self.active) == self.cancel_at:
            for each in active[::2]:
                each.cancelled = True
        taken = self.waiting[: max(self.room - len(active), 0)]
        del self.waiting[: len(taken)]
        return taken


@dataclass(frozen=True)
class Bounds:
    """Bounds what may come next by some symbols or leaves all, as follows from what is written, and the room for more.

    Each time by a new object: that of one row may lie where another's was. Sentences of odd numbers are free.
    """

    bounds = True
    vocabulary: int
    share: int
    read: int = 0

    def symbols(self, number):
        return range(self.vocabulary)

    def start(self, number):
        return None if number % 2 else replace(self, read=fold(self.read, number))

    def restrict(self, written, room):
        words = np.arange(self.vocabulary) + fold(self.read, room if room < 3 else 0)
        mix(words)
        kept = np.flatnonzero(words % self.share == 0).tolist()
        return Restriction(kept, only=True) if words[0] % 5 else None

    def propose(self):
        return None

    def advance(self, symbol):
        return replace(self, read=fold(self.read, symbol) % 2**40)


@contextmanager
def in_python():
    """Every search goes through Python's loop."""
    with mock.patch.object(beam, "can_advance", lambda _: False):
        yield


def follow(model, take):
    """All that a search says, in its order: how many rows read in each step, who was active, outcomes, and its end."""
    outcomes, end = [], None
    try:
        outcomes += ((each.number, outcome) for each, outcome in beam_search(model, take))
    except TransduceError as error:
        end = str(error)
    return model.steps, take.active, outcomes, end


LEVELS = [(0.0,), (0.0, 1.0), (-1.0, 0.5, 0.5, 2.0), (-math.inf, 0.0, 3.0), tuple(range(-30, 30))]
PENALTIES = st.tuples(st.sampled_from(["none", "gnmt", "marian"]), st.sampled_from([0.0, 0.6, 1.0, 2.0, -0.7]))
KINDS = st.fixed_dictionaries(
    {
        "beam_size": st.integers(1, 5),
        "n_best": st.integers(1, 7),
        "penalty": PENALTIES,
        "stopping": st.sampled_from(["exact", "full_beam"]),
        "min_length": st.sampled_from([0, 0, 1, 3, 12]),
    }
)


def examples(some, many):
    """A test of so many examples by ``try_out``; the larger number is slow."""
    return pytest.mark.parametrize("number", [some, pytest.param(many, marks=pytest.mark.slow)])


def try_out(check, number, **strategies):
    settings(max_examples=number)(given(**strategies)(check))()


SENTENCES = st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 2, 5, 9, 17, 36]), st.integers(1, 5))


def follow_both(kinds, forbidden, listed, sentences, arriving, model, share):
    """Whatever the logits, many of them equal, and whatever is asked for; some come late, and some are cancelled.

    The sentences of one kind, with a ``share``, may go on with so many of the symbols at most; those of others, freely.
    """
    vocabulary = model[1]
    kinds = [
        SearchSettings(BEGIN, END, forbidden, **{**each, "penalty": LengthPenalty(*each["penalty"])}) for each in kinds
    ]
    if listed is not None:
        translations = torch.arange(vocabulary).unsqueeze(1) * torch.arange(1, listed + 1) % vocabulary
        kinds = [replace(kinds[0], shortlist=Shortlist(translations, torch.tensor([3]), vocabulary)), *kinds[1:]]
    if share is not None:
        kinds = [replace(kinds[0], constraints=(Bounds(vocabulary, share),)), *kinds[1:]]

    def make():
        return [
            Request([*[(4 + number) % vocabulary] * length, END], limit, kinds[kind % len(kinds)], number)
            for number, (kind, limit, length) in enumerate(sentences)
        ]

    native = follow(Given(*model), Arriving(make(), *arriving))
    with in_python():
        assert follow(Given(*model), Arriving(make(), *arriving)) == native


@pytest.mark.usefixtures("built")
@examples(60, 150)
def test_both_loops_are_one(number):
    try_out(
        follow_both,
        number,
        kinds=st.lists(KINDS, min_size=1, max_size=3),
        forbidden=st.sampled_from([(0, 1), (0, 1, 3), ()]),
        listed=st.sampled_from([None, 1, 3]),
        sentences=st.lists(SENTENCES, min_size=1, max_size=9),
        arriving=st.tuples(st.sampled_from([1, 3, 100]), st.sampled_from([None, None, 3])),
        model=st.tuples(st.integers(0, 1000), st.sampled_from([4, 5, 11, 63, 64, 131]), st.sampled_from(LEVELS)),
        share=st.sampled_from([None, None, 1, 2, 7]),
    )


def drop_and_record(kind, sentences, model, share):
    """A search that is recorded drops none."""
    bounds = () if share is None else (Bounds(model[1], share),)
    kind = {**kind, "penalty": LengthPenalty(*kind["penalty"]), "constraints": bounds}
    kind = SearchSettings(BEGIN, END, (0, 1), **kind)
    found = []
    for settings_ in (kind, replace(kind, recorder=Recorder())):
        requests = [
            Request([*[(4 + number) % model[1]] * length, END], limit, settings_, number)
            for number, (_, limit, length) in enumerate(sentences)
        ]
        rows, *rest = follow(Given(*model), Arriving(requests, 100))
        found.append((len(rows), *rest))
    assert found[0] == found[1]


@pytest.mark.usefixtures("way")
@examples(40, 100)
def test_hypotheses_that_cannot_win_are_dropped_and_no_output_changes(number):
    try_out(
        drop_and_record,
        number,
        kind=KINDS,
        sentences=st.lists(SENTENCES, min_size=1, max_size=5),
        model=st.tuples(st.integers(0, 1000), st.sampled_from([4, 5, 11, 63]), st.sampled_from(LEVELS)),
        share=st.sampled_from([None, 1, 2]),
    )


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("name", "way"),
    [
        *one_each(
            ["plain", "float32", "bfloat16", "int8", "average", "ensemble"],
            ["beam 4", "full beam", "shortest", "greedy"],
        )
    ],
)
def test_both_loops_are_one_with_models(name, way):
    native = search(ready(name), WAYS[way], Waiting(3))
    with in_python():
        assert search(ready(name), WAYS[way], Waiting(3)) == native


class Stepping:
    """A model that makes no rounds by itself."""

    def __init__(self, model):
        for verb in ("encode", "decode", "project", "forward", "start", "step"):
            setattr(self, verb, getattr(model, verb))


def go_alone_and_stepwise(name, kinds, listed, sentences, arriving, moment, share):
    """However many it makes at a time: outcomes are the same to the last bit; who is cancelled may be done before.

    The sentences of one kind, with a ``share``, may go on with so many of the symbols at most.
    """
    model, vocabulary = ready(name), SIZES["vocab_size"]
    kinds = [{**each, "penalty": LengthPenalty(*each["penalty"])} for each in kinds]
    kinds = [SearchSettings(BEGIN, END, (0, 1, 3), **each) for each in kinds]
    if listed is not None:
        translations = torch.arange(vocabulary).unsqueeze(1) * torch.arange(1, listed + 1) % vocabulary
        kinds = [replace(kinds[0], shortlist=Shortlist(translations, torch.tensor([3]), vocabulary)), *kinds[1:]]
    if share is not None:
        kinds = [replace(kinds[0], constraints=(Bounds(vocabulary, share),)), *kinds[1:]]

    def make():
        return [
            Request([*[4 + number % 30] * length, END], limit, kinds[kind % len(kinds)], number)
            for number, (kind, limit, length) in enumerate(sentences)
        ]

    stepwise = {each.number: found for each, found in beam_search(Stepping(model), Arriving(make(), *arriving))}
    with mock.patch.object(beam, "_MOMENT", moment):
        alone = {each.number: found for each, found in beam_search(model, Arriving(make(), *arriving))}
    assert alone.keys() == stepwise.keys()
    for number, found in alone.items():
        if not (isinstance(found, Cancelled) or isinstance(stepwise[number], Cancelled)):
            assert found == stepwise[number]


@pytest.mark.usefixtures("built")
@examples(25, 60)
def test_rounds_that_a_model_makes_by_itself_change_nothing(number):
    try_out(
        go_alone_and_stepwise,
        number,
        name=st.sampled_from(["float32", "bfloat16", "int8", "average"]),
        kinds=st.lists(KINDS, min_size=1, max_size=2),
        listed=st.sampled_from([None, None, 3]),
        sentences=st.lists(
            st.tuples(st.integers(0, 1), st.sampled_from([1, 2, 5, 9, 40]), st.integers(1, 20)), min_size=1
        ),
        arriving=st.tuples(st.sampled_from([1, 3, 100]), st.sampled_from([None, None, 3])),
        moment=st.sampled_from([0.0, 1e-4, 1e9]),
        share=st.sampled_from([None, None, 1, 2, 7]),
    )


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_scores_of_other_types_are_ranked_alike(dtype):
    levels = tuple(range(-30, 30))
    native = follow(Given(5, 131, levels, dtype), Arriving(make_requests(SOURCE, [9, 7], PLAIN), 2))
    with in_python():
        assert follow(Given(5, 131, levels, dtype), Arriving(make_requests(SOURCE, [9, 7], PLAIN), 2)) == native


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("levels", [(0.0, math.nan), (0.0, math.inf), (-math.inf,)])
def test_scores_that_are_no_numbers_end_both(levels):
    for loop in (in_python, nullcontext):
        with loop():
            *_, end = follow(Given(1, 11, levels), Arriving(make_requests(SOURCE, [9, 9], PLAIN), 2))
            assert "no finite scores" in end


def reading(model, settings):
    """How many rows of two sentences read a symbol, round by round."""
    follow(model, Arriving(make_requests(SOURCE, [9, 9], settings), 2))
    return [len(tokens) - tokens.count(READS_NOTHING) for tokens in model.read]


@pytest.mark.usefixtures("way")
def test_only_what_can_be_continued_is_read():
    """One row of a sentence at first, and where a prefix leaves one hypothesis; of samples, each."""
    wide = replace(PLAIN, beam_size=5, min_length=9)
    assert reading(Given(1, 131, LEVELS[-1]), wide) == [2] + 8 * [10]
    forced = replace(wide, constraints=(Prefixes({0: (7, 8), 1: (9,)}),))
    assert reading(Given(1, 131, LEVELS[-1]), forced) == [2, 2, 6] + 6 * [10]
    # From the first end on, hypotheses that cannot win leave before all is certain; a recorded search keeps them.
    one = replace(PLAIN, beam_size=5, n_best=1, penalty=LengthPenalty("none"))
    assert reading(Given(1, 31, LEVELS[-1]), one) == [2, 10, 10, 10, 10, 4, 3, 3, 1]
    kept = reading(Given(1, 31, LEVELS[-1]), replace(one, recorder=Recorder()))
    assert (len(kept), [count % 5 for count in kept[1:]]) == (9, 8 * [0])
    samples = reading(Given(1, 7, (0.0,)), replace(PLAIN, beam_size=5, sampling=Sampling()))
    assert samples[0] == 10
    assert samples == sorted(samples, reverse=True)
    assert samples[-1] < 10


PREFIXES = Prefixes({0: (7, 8)})
ALIKE = {"plain": {}, "bounded": {"constraints": (PREFIXES,)}}
UNLIKE = {
    "constraints": {"constraints": (NoRepeat(2),)},
    "bounded twice": {"constraints": (PREFIXES, Prefixes({1: (9,)}))},
    "samples": {"sampling": Sampling()},
    "diverse": {"diversity": 0.3},
    "recorded": {"recorder": Recorder()},
}


@pytest.mark.parametrize("changes", [*ALIKE.values(), *UNLIKE.values()], ids=[*ALIKE, *UNLIKE])
def test_what_is_asked_for_decides(way, changes):
    """C++ where it is there and nothing but the most probable outputs is asked for, of few symbols that may come."""
    with mock.patch.object(beam, "NativeBeams", wraps=NativeBeams) as native:
        follow(Given(1, 11, (0.0, 1.0)), Arriving(make_requests(SOURCE, [9, 9], replace(PLAIN, **changes)), 2))
    assert native.begin.called == (way != "plain" and changes in ALIKE.values())


def test_coverage_is_pythons():
    assert not replace(PLAIN, coverage=0.2).is_plain


def test_by_hand():
    """First 4 (p = 0.5), 5 (0.3) or the end; then the end with 0.4 behind 4 and 0.9 behind 5, else 4; then the end."""
    table = {(): {4: 0.5, 5: 0.3, END: 0.2}, (4,): {END: 0.4, 4: 0.6}, (5,): {END: 0.9, 4: 0.1}}
    known = {reduce(fold, (END, BEGIN, *written), 0): following for written, following in table.items()}

    class Table(Given):
        def logits(self, rows):
            following = [known.get(row, {END: 1.0}) for row in rows.tolist()]
            return torch.tensor([[each.get(symbol, 1e-30) for symbol in range(6)] for each in following]).log()

    asked = replace(PLAIN, beam_size=2, n_best=3, penalty=LengthPenalty("none"), stopping="full_beam")
    (outcome,) = dict(beam_search(Table(0, 6, ()), Arriving([Request([END], 9, asked)], 1))).values()
    # The end is third in the first round. In the second, 4 4 (0.3) and 5 END (0.27) are the best, before 4 END (0.2)
    # and 5 4 (0.03). In the third, 4 4 END (0.3) and 5 4 END (0.03) are the best: that makes a full beam.
    assert [each.ids for each in outcome] == [(4, 4), (5,), (5, 4)]
    assert [math.exp(each.score) for each in outcome] == pytest.approx([0.3, 0.27, 0.03], abs=1e-6)


def flat(sentences=2):
    """Sentences at their beginning."""
    asked = Asked(9, 0, 1, full_beam=False, penalty="none", alpha=0.0)
    return FlatBeams.begin([asked] * sentences, 3, torch.full((3 * sentences,), BEGIN), (0, 1), END)


@pytest.mark.parametrize("field", ["length", "ended", "n_best"])
@pytest.mark.parametrize("value", [-1, 99])
@pytest.mark.usefixtures("built")
def test_what_leads_outside_is_refused(field, value):
    beams = flat()
    beams.searched[field][1] = value
    with pytest.raises(IndexError, match="advance_beams"):
        beams.advance(torch.zeros(6, 11))


@pytest.mark.parametrize(("field", "value"), [("length", 99), ("length", -1), ("place", 3), ("place", -1)])
@pytest.mark.usefixtures("built")
def test_outputs_that_lead_outside_are_refused(field, value):
    beams = flat()
    for best in (4, END):
        logits = torch.zeros(6, 11)
        logits[:, best] = 5.0
        beams.advance(logits)
    assert [len(several) for several in beams.outputs(np.arange(2))] == [1, 1]
    beams.ended[field][1, 0] = value
    with pytest.raises((IndexError, ValueError)):
        beams.outputs(np.arange(2))


@pytest.mark.usefixtures("built")
def test_each_has_as_many_outputs_as_it_was_asked_for():
    """Two sentences that leave together: one was asked for a single output, and has a second that is longer."""
    asked = [
        Asked(10, 0, 1, full_beam=True, penalty="none", alpha=0.0),
        Asked(3, 0, 2, full_beam=False, penalty="none", alpha=0.0),
    ]
    beams = FlatBeams.begin(asked, 2, torch.tensor([BEGIN, READS_NOTHING] * 2), (0, 1), END)
    for probabilities in ({4: 0.4, END: 0.5}, {4: 0.9}, {END: 0.5, 4: 0.4}):
        row = torch.full((11,), 1e-9)
        for symbol, probability in probabilities.items():
            row[symbol] = probability
        beams.advance(row.log().repeat(4, 1))
    assert beams.searched["ended"].tolist() == [2, 2]
    first, second = beams.outputs(np.arange(2))
    assert [each.ids for each in first] == [()]
    assert [each.ids for each in second] == [(), (4, 4)]
    assert beams.outputs(np.array([1, 0])) == [second, first]


@pytest.mark.usefixtures("built")
def test_outputs_of_a_sentence_that_there_is_not_are_refused():
    beams = flat()
    beams.outputs(np.arange(2))
    with pytest.raises(IndexError):
        beams.outputs(np.array([0, 2]))


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(("moment", "calls"), [(0.0, 13), (1e9, 1)])
def test_a_model_makes_rounds_by_itself_as_long_as_it_may(moment, calls):
    model = ready("float32")
    settings_ = SearchSettings(BEGIN, END, (0, 1, 3), beam_size=2, min_length=12)
    requests = [Request([5, 6, END], 13, settings_, number) for number in range(3)]
    with mock.patch.object(beam, "_MOMENT", moment), mock.patch.object(model, "search", wraps=model.search) as search_:
        assert len(dict(beam_search(model, Arriving(requests, 3)))) == 3
    assert search_.call_count == calls


@pytest.mark.usefixtures("built")
def test_a_constraint_that_bounds_nothing_is_told_so():
    class Banning(Bounds):
        def restrict(self, written, room):
            return Restriction((4,))

    asked = replace(PLAIN, constraints=(Banning(11, 1),))
    *_, end = follow(Given(1, 11, (0.0,)), Arriving(make_requests(SOURCE, [9, 9], asked), 2))
    assert "only=True, or leave bounds out" in end


def test_who_says_that_it_bounds_nothing_is_pythons():
    class Unbound(Bounds):
        bounds = False

    assert replace(PLAIN, constraints=(Bounds(11, 1),)).is_plain
    assert not replace(PLAIN, constraints=(Unbound(11, 1),)).is_plain


@pytest.mark.usefixtures("built")
def test_a_sentence_that_is_gone_is_asked_for_nothing():
    """Two of twenty end at once: too few to close ranks for, and what bounded them is not asked again."""
    asked = []

    class Asking(Bounds):
        def start(self, number):
            return replace(self, read=number)

        def restrict(self, written, room):
            asked.append((self.read, room))
            return Restriction((END,) if self.read < 2 else (4,), only=True)

        def advance(self, symbol):
            return self

    requests = [Request([4, END], 5, replace(PLAIN, beam_size=1, constraints=(Asking(11, 1),)), n) for n in range(20)]
    _, active, outcomes, end = follow(Given(1, 11, (0.0,)), Arriving(requests, 20))
    assert end is None
    assert [number for number, _ in outcomes[:2]] == [0, 1]
    assert active[1] == list(range(2, 20))
    assert {number: sum(each == number for each, _ in asked) for number in (0, 1, 2)} == {0: 1, 1: 1, 2: 5}


@pytest.mark.usefixtures("built")
def test_lists_that_lead_outside_are_refused():
    choices = Choices(torch.tensor([0, 1, -1, 0, 0, 0]), torch.tensor([0, 2, 3]), torch.tensor([4, 5, 11]))
    with pytest.raises(IndexError, match="advance_beams"):
        flat().advance(torch.zeros(6, 11), None, choices)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("shape", [(5, 11), (6, 2)])
def test_logits_of_other_sizes_are_refused(shape):
    with pytest.raises((ValueError, IndexError)):
        flat().advance(torch.zeros(shape))
