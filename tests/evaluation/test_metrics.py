import pytest
import sacrebleu

from transduce.config import METRICS, BadInputError
from transduce.evaluation import corpus_score

REFERENCES = [
    "Ein Mann mit einem Hut, der etwas betrachtet.",
    "Ein Boston Terrier läuft über saftig-grünes Gras vor einem weißen Zaun.",
    "Ein Mädchen in einem Karateanzug bricht ein Brett mit einem Tritt.",
]
HYPOTHESES = [
    "Ein Mann mit einem Hut betrachtet etwas.",
    "Ein Boston Terrier läuft auf grünem Gras vor einem weißen Zaun.",
    "Ein Mädchen in einem Karateanzug bricht ein Brett mit einem Tritt.",
]


@pytest.mark.parametrize(
    ("metric", "function"),
    [("bleu", sacrebleu.corpus_bleu), ("chrf", sacrebleu.corpus_chrf), ("ter", sacrebleu.corpus_ter)],
)
def test_agrees_with_sacrebleu(metric, function):
    score = corpus_score(metric, HYPOTHESES, REFERENCES)
    assert score.metric == metric
    assert 0 < score.value < 100
    assert score.value == function(HYPOTHESES, [REFERENCES]).score


@pytest.mark.parametrize(("metric", "value"), [("bleu", 100), ("chrf", 100), ("ter", 0), ("exact", 100)])
def test_the_reference_itself_is_perfect(metric, value):
    assert corpus_score(metric, REFERENCES, REFERENCES).value == pytest.approx(value)


def test_ter_by_hand():
    # One of four words is another.
    assert corpus_score("ter", ["a b x d"], ["a b c d"]).value == pytest.approx(25)


def test_exact_by_hand():
    # Two of five: a letter's case, a space at the end and a missing word each make a line another one.
    outputs = ["jump left", "Run", "walk ", "look", ""]
    score = corpus_score("exact", outputs, ["jump left", "run", "walk", "look", "turn"])
    assert score.value == pytest.approx(40)
    assert score.signature == "nrefs:1|lines:5|case:mixed|tok:none"


@pytest.mark.parametrize(
    ("metric", "parts"),
    [
        ("bleu", ["nrefs:1", "case:mixed", "eff:no", "tok:13a", "smooth:exp"]),
        ("chrf", ["nrefs:1", "case:mixed", "nc:6", "nw:0"]),
        ("ter", ["nrefs:1", "case:lc", "tok:tercom"]),
    ],
)
def test_the_signature_says_how(metric, parts):
    signature = corpus_score(metric, HYPOTHESES, REFERENCES).signature
    assert set(parts) <= set(signature.split("|"))
    assert f"version:{sacrebleu.__version__}" in signature


def test_case_counts():
    lowered = [text.lower() for text in REFERENCES]
    assert corpus_score("bleu", lowered, REFERENCES).value < 100
    assert corpus_score("chrf", lowered, REFERENCES).value < 100
    assert corpus_score("exact", lowered, REFERENCES).value == 0


def test_text_that_is_tokenized_already():
    hypotheses, references = (
        [text.replace(",", " ,").replace(".", " .") for text in side] for side in (HYPOTHESES, REFERENCES)
    )
    score = corpus_score("bleu", hypotheses, references, tokenize="none")
    assert score.value == sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score
    assert "tok:none" in score.signature


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_empty_outputs_count_against_the_score(metric):
    some = corpus_score(metric, ["", *HYPOTHESES[1:]], REFERENCES).value
    whole = corpus_score(metric, HYPOTHESES, REFERENCES).value
    assert some > whole if metric == "ter" else some < whole


@pytest.mark.parametrize(("outputs", "references"), [(2, 3), (3, 2), (0, 3), (3, 0)])
def test_what_does_not_pair_up_is_refused_with_both_counts(outputs, references):
    with pytest.raises(BadInputError, match=f"{outputs} outputs but {references} references"):
        corpus_score("bleu", HYPOTHESES[:outputs], REFERENCES[:references])


def test_every_metric_of_outputs_can_be_computed_and_no_other():
    for key, metric in METRICS.items():
        if metric.needs == "outputs":
            assert corpus_score(key, HYPOTHESES, REFERENCES).metric == key
        elif metric.needs == "probabilities":
            with pytest.raises(BadInputError, match=f"{key} is of a model and not of its outputs"):
                corpus_score(key, HYPOTHESES, REFERENCES)
        elif metric.needs == "trees":
            with pytest.raises(BadInputError, match="reference 1: 'Ein' stands outside of all brackets"):
                corpus_score(key, HYPOTHESES, REFERENCES)


def test_nothing_is_refused():
    with pytest.raises(BadInputError, match="nothing to score"):
        corpus_score("bleu", [], [])
