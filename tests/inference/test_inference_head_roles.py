"""What heads do over a corpus: by hand, by the formulas in loops over single pairs, and whatever is in a batch."""

import math

import numpy as np
import pytest

import transduce
from transduce.config import BadInputError
from transduce.config.attention import AttentionHead
from transduce.config.head_roles import MEASURES, HeadRole, layer_means, measured
from transduce.inference import AttentionMaps, HeadStatistics
from transduce.inference.alignment import ReferenceAlignment, read_pharaoh
from transduce.inference.head_roles import measure, own_alignment

pytest_plugins = ["tiny_run"]

SOURCES = ["bamo dulu kari", "wemo", "fepi gozu luso bamo dulu kari wemo fepi", "kari bamo"]
TARGETS = ["ti sor mup", "yob ti", "nal ved hax ti sor mup yob", "mup ti ti"]


def maps_of(source_words, target_words, encoder=None, decoder=None, cross=None):
    """The maps of words without names; each kind is a list of one layer's heads."""
    read = ("<s>", *map(str, target_words))
    sides = [(*map(str, words), "</s>") for words in (source_words, target_words)]
    numbers = [(*words, max(words) + 1) for words in (source_words, target_words)]
    kinds = (None if heads is None else np.array([heads], "f4") for heads in (encoder, decoder, cross))
    return AttentionMaps(*sides, read, *numbers, *kinds)


def test_maps_are_told_by_their_shapes():
    maps = maps_of([0, 1], [0], cross=np.zeros((2, 2, 3)))
    assert repr(maps) == "AttentionMaps(0 1 </s> -> 0 </s>: cross (1, 2, 2, 3))"
    assert maps in {maps}


def roles_of(maps, reference=None):
    return HeadStatistics(measure(maps, reference), 1).roles()


def test_uniform_weights_have_the_entropy_of_all_keys():
    """Three words and the end: ln 4. From words 0, 1, 2 to words: (0 + 1 + 2) / 3, (1 + 0 + 1) / 3, (2 + 1 + 0) / 3."""
    (role,) = roles_of(maps_of(range(3), [0], encoder=[np.full((4, 4), 1 / 4)]))
    assert role.head == AttentionHead("encoder", 0, 0)
    assert role.entropy == pytest.approx(math.log(4))
    assert role.max_entropy == pytest.approx(math.log(4))
    assert role.distance == pytest.approx((3 + 2 + 3) / 9)
    assert role.offset == pytest.approx(0)
    assert [role.previous, role.same, role.next, role.end] == pytest.approx([1 / 4] * 4)
    assert (role.agreement, role.aer, role.bleu_loss, role.p_value) == (None,) * 4


@pytest.mark.parametrize(
    ("offset", "name", "edge"),
    [(-1, "previous", 0), (0, "same", None), (1, "next", 2)],
)
def test_a_head_that_looks_at_a_neighbour(offset, name, edge):
    """Where there is none, it looks at the end: that query counts for the end, and not against the neighbour."""
    weights = np.zeros((4, 4))
    for query in range(3):
        weights[query, 3 if query == edge else query + offset] = 1
    weights[3, 0] = 1  # the end symbol's own row counts for nothing
    (role,) = roles_of(maps_of(range(3), [0], encoder=[weights]))
    assert role.entropy == 0
    assert (role.distance, role.offset) == (abs(offset), offset)
    assert {key: role.of(key) for key in ("previous", "same", "next")} == {
        key: float(key == name) for key in ("previous", "same", "next")
    }
    assert role.end == (0 if edge is None else pytest.approx(1 / 3))


def test_a_decoder_looks_back_alone():
    """Words 0 and 1 have read two and three symbols, of which the first is the begin symbol."""
    uniform = np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, np.newaxis]
    (role,) = roles_of(maps_of([0], range(2), decoder=[uniform]))
    assert role.entropy == pytest.approx((math.log(2) + math.log(3)) / 2)
    assert role.max_entropy == pytest.approx(role.entropy)
    assert role.end == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert role.same == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert role.previous == pytest.approx(1 / 3)  # of the one word that has one
    assert role.distance == pytest.approx((1 / 3) / (1 / 2 + 1 / 3 + 1 / 3))
    assert (role.next, role.offset) == (None, None)


def test_cross_attention_by_the_alignment():
    """Source words 0, 1 and 2, the last of two tokens; target words 0 and 1, aligned with 1, and with 1 and 2."""
    cross = [
        [0.3, 0.4, 0.1, 0.1, 0.1],
        [0.0, 0.2, 0.1, 0.6, 0.1],
        [0.0, 0.0, 0.0, 0.0, 1.0],  # what the end is written from
    ]
    reference = ReferenceAlignment(frozenset({(1, 0), (1, 1)}), frozenset({(1, 0), (1, 1), (2, 1)}))
    (role,) = roles_of(maps_of([0, 1, 2, 2], range(2), cross=[cross]), reference)
    assert role.same == pytest.approx((0.4 + 0.9) / 2)
    assert role.previous == pytest.approx((0.3 + 0.0) / 2)
    assert role.next == pytest.approx(0.2)  # of the first alone: behind word 2 there is none
    assert role.end == pytest.approx(0.1)
    # Four source tokens for two target tokens: the diagonal goes through 1 and 3, tokens lie at 0.5, 1.5, 2.5, 3.5.
    first, second = (0.3 + 0.4) * 0.5 + 0.1 * 1.5 + 0.1 * 2.5, (0.2 * 1.5 + (0.1 + 0.6) * 0.5)
    assert role.distance == pytest.approx((first + second) / 1.8)
    ahead, behind = 0.4 * 0.5 + 0.1 * 1.5 + 0.1 * 2.5 + 0.6 * 0.5, 0.3 * 0.5 + (0.2 * 1.5 + 0.1 * 0.5)
    assert role.offset == pytest.approx((ahead - behind) / 1.8)
    # Links 1-0 and 2-1: both possible, one of the two sure.
    assert role.agreement == 1
    assert role.aer == pytest.approx(1 - (1 + 2) / (2 + 2))


def test_the_own_alignment_is_the_layers_before_the_last():
    layers = np.zeros((3, 2, 3, 3), "f4")
    layers[0, :, :, 0] = layers[2, :, :, 1] = 1
    layers[1, 0, :, 0], layers[1, 1, :, 1] = 0.4, 0.8  # their mean: source word 1
    maps = maps_of(range(2), range(2))
    maps = AttentionMaps(*(getattr(maps, name) for name in list(maps.__dataclass_fields__)[:-1]), cross=layers)
    assert [role.agreement for role in roles_of(maps)] == [0, 0, 0, 1, 1, 1]
    assert all(role.aer is None for role in roles_of(maps))


def test_the_own_alignment_is_what_translate_gives(translator):
    (output,) = translator.translate([SOURCES[0]], return_alignment=True)
    assert own_alignment(translator.attend(SOURCES[0])).sure == {*output.alignment}


def test_against_loops_over_single_pairs(trained_run):
    """The formulas once more, a pair at a time, a weight at a time."""
    translator = transduce.load(trained_run, "float32")
    found = {role.head: role for role in translator.measure_heads(SOURCES, TARGETS).roles()}
    every = [translator.attend(*pair) for pair in zip(SOURCES, TARGETS, strict=True)]
    assert len(found) == 6
    for (kind, layer, head), role in found.items():
        entropies, distances, text, end = [], 0.0, 0.0, []
        shares = {"previous": [], "same": [], "next": []}
        for maps in every:
            weights = maps.of(kind)[layer, head].astype("f8")
            queries = range(1, len(weights)) if kind == "decoder" else range(len(weights) - 1)
            special = 0 if kind == "decoder" else weights.shape[1] - 1
            for query in queries:
                entropies.append(-sum(each * math.log(each) for each in weights[query] if each > 0))
                end.append(weights[query, special])
                for key in range(weights.shape[1]):
                    if key == special:
                        continue
                    away = key - query
                    if kind == "cross":
                        columns, rows = weights.shape[1] - 1, len(weights) - 1
                        away = key + 0.5 - (query + 0.5) * columns / rows
                    distances += weights[query, key] * abs(away)
                    text += weights[query, key]
                    for name, offset in (("previous", -1), ("same", 0), ("next", 1)):
                        if key - query == offset:
                            shares[name].append(weights[query, key])
        assert role.entropy == pytest.approx(np.mean(entropies), rel=1e-4)
        assert role.distance == pytest.approx(distances / text, rel=1e-4)
        assert role.end == pytest.approx(np.mean(end), rel=1e-4)
        if kind == "cross":
            continue
        assert role.previous == pytest.approx(np.mean(shares["previous"]), rel=1e-4)
        assert role.same == pytest.approx(np.mean(shares["same"]), rel=1e-4)
        assert kind == "decoder" or role.next == pytest.approx(np.mean(shares["next"]), rel=1e-4)


def test_a_batch_and_its_padding_change_nothing(translator):
    together = translator.measure_heads(SOURCES, TARGETS)
    apart = sum((translator.measure_heads([s], [t]) for s, t in zip(SOURCES, TARGETS, strict=True)), HeadStatistics())
    assert together.pairs == apart.pairs == 4
    for one, other in zip(together.roles(), apart.roles(), strict=True):
        for key in MEASURES:
            assert one.of(key) == (None if other.of(key) is None else pytest.approx(other.of(key), rel=1e-4, abs=1e-5))


def test_a_model_that_translates_word_by_word_agrees_with_the_diagonal(translator):
    sources, targets = ["bamo dulu kari", "wemo", "kari bamo"], ["ti sor mup", "yob", "mup ti"]
    diagonal = ["0-0 1-1 2-2", "0-0", "0-0 1-1"]
    own, given = (
        [role for role in translator.measure_heads(sources, targets, alignments=lines).roles() if role.agreement]
        for lines in (None, diagonal)
    )
    assert max(role.same for role in given) > 0.8
    assert max(role.agreement for role in given) == 1 == max(role.agreement for role in own)
    assert [role.aer for role in own] == [None, None]
    assert min(role.aer for role in given) == 0


def test_pairs_that_cannot_be_measured_are_left_out(translator, monkeypatch):
    sources, targets = ["bamo", " ", "kari " * 3000, "wemo", "wemo"], ["ti", "ti", "mup", "", "yob"]
    found = translator.measure_heads(sources, targets)
    assert found.pairs == 2
    assert {index: str(error).partition(":")[0] for index, error in found.left_out.items()} == {
        1: "a side is empty",
        2: "source",
        3: "a side is empty",
    }
    assert "max_source_length" in str(found.left_out[2])
    only = translator.measure_heads(["bamo", "wemo"], ["ti", "yob"])
    assert [role.entropy for role in found.roles()] == pytest.approx([role.entropy for role in only.roles()])
    both = only + found
    assert (both.pairs, [*both.left_out]) == (4, [3, 4, 5])
    assert HeadStatistics().roles() == []
    assert [*translator.measure_heads(["bamo dulu"], ["ti"], max_source_length=1).left_out] == [0]

    engine, whole = translator._engine, translator._engine._model.encode

    def cramped(source, **options):
        if len(source.ids) > 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return whole(source, **options)

    monkeypatch.setattr(engine._model, "encode", cramped)
    halved = translator.measure_heads(["bamo", "wemo"], ["ti", "yob"])
    # Batches of another size add up in another order, so the last digits of float32 may differ.
    assert [role.entropy for role in halved.roles()] == pytest.approx([role.entropy for role in only.roles()], rel=1e-5)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("0-0 1:1", "'1:1' is no link: write source-target"),
        ("0-0-0", "'0-0-0' is no link"),
        ("2-0", "'2-0': the source has 2 words, counted from 0"),
        ("0p1", "'0p1': the target has 1 words"),
    ],
)
def test_what_is_no_alignment_is_named(translator, line, named):
    with pytest.raises(BadInputError, match=rf"^alignment 7: {named}"):
        translator.measure_heads(["bamo dulu"], ["ti"], alignments=[line], first_number=7)


def test_sides_that_do_not_pair_up_are_named(translator):
    with pytest.raises(BadInputError, match="2 sources and 1 targets"):
        translator.measure_heads(["bamo", "wemo"], ["ti"])
    with pytest.raises(BadInputError, match="2 alignments and 1 pairs"):
        translator.measure_heads(["bamo"], ["ti"], alignments=["0-0", ""])


def test_sure_and_possible_links():
    read = read_pharaoh("0-0 1p0 1-1", "a b", "x y")
    assert read.sure == {(0, 0), (1, 1)}
    assert read.possible == {(0, 0), (1, 0), (1, 1)}


def test_means_of_layers():
    rows = [
        HeadRole(AttentionHead("encoder", 0, 0), entropy=1.0, p_value=0.2),
        HeadRole(AttentionHead("encoder", 0, 1), entropy=2.0, next=0.5),
        HeadRole(AttentionHead("encoder", 1, 0), entropy=4.0),
        HeadRole(AttentionHead("decoder", 0, 0), entropy=7.0),
    ]
    means = {(mean.kind, mean.layer): mean.means for mean in layer_means(rows)}
    assert means == {
        ("encoder", 0): {"entropy": 1.5, "next": 0.5},
        ("encoder", 1): {"entropy": 4.0},
        ("decoder", 0): {"entropy": 7.0},
    }
    assert measured(rows) == ["entropy", "next", "p_value"]


def test_every_measure_is_of_a_row_and_is_shown():
    fields = set(HeadRole.__dataclass_fields__) - {"head"}
    assert set(MEASURES) == fields
    assert MEASURES["offset"].show(-0.001) == "0.00"
    assert MEASURES["aer"].show(None) == ""
