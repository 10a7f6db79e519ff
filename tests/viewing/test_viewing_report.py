"""The page of a training, from plain data."""

import re
from html.parser import HTMLParser

import pytest

from tests.viewing.made_up_training import dev, train
from transduce.viewing import ReportPage, TrainingRecord
from transduce.viewing.report import find_best, throughput
from transduce.viewing.samples import draw_samples

LINES = [train(10), dev(10, 5.0, ["a b", "c"]), train(20, loss=3.5), dev(20, 7.0, ["a d", "c"])]


def page_of(lines, **more):
    return ReportPage(TrainingRecord("mine", lines, **more)).html()


def titles(page):
    return re.findall("<h3>(.*?)</h3>", page)


def values(page, title, series):
    """What a chart's points say, by step."""
    figure = page.partition(f"<h3>{title}</h3>")[2].partition("</figure>")[0]
    drawn = figure.partition(f'data-name="{series}"')[2].partition("</g>")[0]
    return {int(step): value for step, value in re.findall(r'data-step="(\d+)" data-value="(.*?)"', drawn)}


def figures(page):
    return dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page))


def test_every_measurement_has_its_curve():
    page = page_of(LINES)
    assert titles(page) == ["Loss", "BLEU", "Learning rate", "Throughput", "Gradient norm"]
    assert values(page, "Loss", "train") == {10: "4.000", 20: "3.500"}
    assert values(page, "Loss", "dev") == {10: "3.000", 20: "3.000"}
    assert values(page, "BLEU", "dev") == {10: "5.00", 20: "7.00"}
    assert values(page, "Throughput", "train") == {10: "200", 20: "200"}
    assert values(page, "Gradient norm", "train") == {10: "0.25", 20: "0.25"}


def test_what_one_looks_for_first():
    assert figures(page_of(LINES, facts={"Model": "a <small> one"})) == {
        "Model": "a &lt;small&gt; one",
        "Best BLEU on dev": "7.00 at step 20 (loss 3.000, perplexity 20.09)",
        "Trained": "20 steps, 2,000 target tokens, 10 s without validation",
        "Throughput": "200 target tokens per second",
        "Gradient norm": "0.25 at the end, largest 0.25 (the steps up to 20)",
        "Skipped updates": "none",
    }


def test_means_of_checkpoints_have_curves_and_outputs_of_their_own():
    page = page_of([*LINES, dev(20, 8.0, ["a e"], average=3)])
    assert values(page, "BLEU", "dev (mean of 3)") == {20: "8.00"}
    assert figures(page)["Best BLEU on dev"].startswith("8.00 at step 20, mean of 3 checkpoints")
    assert "mean of 3 checkpoints</th>" in page


def test_a_loss_of_the_models_own_has_a_curve():
    page = page_of([train(10, auxiliary_loss=0.125), dev(10, 1.0, auxiliary_loss=0.25)])
    assert values(page, "Auxiliary loss", "train") == {10: "0.125"}
    assert values(page, "Auxiliary loss", "dev") == {10: "0.25"}


def test_the_busiest_expert_of_the_worst_layer_has_a_curve():
    page = page_of([train(10, busiest_expert=[1.5, 2.25, 1]), train(20, busiest_expert=[]), dev(10, 1.0)])
    assert values(page, "Busiest expert of the worst layer", "train") == {10: "2.25"}


def test_skipped_updates_are_counted_and_their_loss_is_none():
    skipped = train(30, loss=0.0, target_tokens=2000, skipped=2)
    del skipped["gradient_norm"]
    page = page_of([*LINES, skipped, train(40, skipped=2)])
    assert values(page, "Skipped updates", "train") == {10: "0", 20: "0", 30: "2", 40: "2"}
    assert 30 not in values(page, "Loss", "train")
    assert figures(page)["Skipped updates"] == "2: their gradient was infinite or NaN, and no weight moved"


def test_an_older_training_is_shown_without_what_it_did_not_record():
    lines = [
        {key: value for key, value in line.items() if key not in {"gradient_norm", "skipped", "samples"}}
        for line in LINES
    ]
    page = page_of(lines)
    assert "Gradient norm" not in titles(page)
    unrecorded = "not recorded by the version that wrote these lines"
    assert figures(page)["Gradient norm"] == figures(page)["Skipped updates"] == unrecorded
    assert f"Outputs of dev: {unrecorded}." in page


def test_a_training_without_dev_says_so():
    page = page_of([train(1)])
    assert titles(page) == ["Loss", "Learning rate", "Throughput", "Gradient norm"]
    assert figures(page)["Best BLEU on dev"] == "dev was not measured yet (train.validate_every)"
    assert "Outputs of dev: dev was not translated yet (train.validate_every)." in page


def test_a_model_that_is_fine_tuned_is_measured_before_the_first_step():
    page = page_of([dev(0, 30.0)])
    assert values(page, "BLEU", "dev") == {0: "30.00"}
    assert figures(page) == {"Best BLEU on dev": "30.00 at step 0 (loss 3.000, perplexity 20.09)"}


@pytest.mark.parametrize(("metric", "best"), [("bleu", 2), ("loss", 2), ("perplexity", 2), ("ter", 3), ("chrf", None)])
def test_the_best_is_of_equals_that_of_the_lower_loss_and_the_first_of_these(metric, best):
    nan = float("nan")
    lines = [
        dev(10, 5.0, loss=nan, ter=60.0),
        dev(20, 7.0, loss=2.0, ter=50.0),
        dev(20, 7.0, loss=1.0, ter=50.0, average=2),
        dev(30, nan, loss=1.0, ter=40.0),
    ]
    assert find_best([train(10), *lines], metric) is (None if best is None else lines[best])


def test_speed_goes_on_where_a_training_was_resumed():
    """Tokens and seconds are counted from the checkpoint on; a count that falls is of another training."""
    lines = [train(10), dev(10, 1.0), train(20, seconds=25.0), train(30, target_tokens=500, seconds=30.0), train(40)]
    del lines[1]["target_tokens"]
    assert throughput(lines) == [(10, 200.0), (20, pytest.approx(1000 / 20.0))]
    assert throughput([train(10, seconds=0.0)]) == []  # too fast for the clock


def test_values_that_are_none_do_no_harm():
    nan, infinite = float("nan"), float("inf")
    odd = {"loss": "x", "bleu": None, "skipped": True, "samples": [{"source": 1}, 7], "seconds": infinite}
    page = page_of([{"step": 3, "split": "train"}, {"step": 5, "split": "dev", **odd}, train(7, loss=nan)])
    assert titles(page) == ["Loss", "Learning rate", "Throughput", "Gradient norm"]


def rows(drawn):
    return [re.sub("</?ins>", "_", row) for row in re.findall(r'<th scope="row">(.*?</td>)', drawn)]


def test_outputs_that_stay_stand_once_and_what_is_new_is_marked():
    outputs = ["", "a dog", "a dog", "a cat &", "the cat &"]
    lines = [dev(step, 1.0, [output]) for step, output in enumerate(outputs)]
    assert rows(draw_samples(lines)) == [
        'reference</th><td dir="auto">r1</td>',
        '0</th><td dir="auto"><span class="faint">(empty)</span></td>',
        '1 to 2</th><td dir="auto">_a dog_</td>',
        '3</th><td dir="auto">a _cat &amp;_</td>',
        '4</th><td dir="auto">_the_ cat &amp;</td>',
    ]


def test_where_no_space_parts_words_a_character_is_one():
    assert "狗在<ins>睡</ins>" in draw_samples([dev(1, 1.0, ["狗在跑"]), dev(2, 1.0, ["狗在睡"])])


def test_of_many_outputs_some_are_shown_the_last_among_them():
    drawn = draw_samples([dev(step, 1.0, [f"w{step}"]) for step in range(1, 501)])
    assert len(rows(drawn)) == 41
    assert "w1<" in drawn
    assert "w500<" in drawn
    assert "40 of 500 different outputs" in drawn


class Elements(HTMLParser):
    """Sees that every element is closed where it should be."""

    def __init__(self, page):
        super().__init__()
        self.open, self.names = [], set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.names.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_for_nothing_from_elsewhere():
    hostile = "</script><img src=x onerror=alert(1)>{{script}}\ud800"
    lines = [*LINES, dev(30, 1.0, [hostile], average=hostile)]
    page = page_of(lines, facts={hostile: hostile}, settings=hostile, preparation=hostile, notes=[hostile])
    elements = Elements(page)
    assert elements.open == []
    assert elements.names.isdisjoint({"img", "link", "iframe", "object"})
    assert page.count("</script>") == 1
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\bsrc=[\"']|@import|url\(|fetch\(|XMLHttp", page)
    page.encode()


def test_files_are_on_the_page_and_may_be_missing():
    page = page_of(LINES, settings="seed = 1\n", preparation="211 of 211 pairs kept", notes=["the last line is cut"])
    assert '<pre tabindex="0">seed = 1\n</pre>' in page
    assert "211 of 211 pairs kept</pre>" in page
    assert '<p class="note">the last line is cut</p>' in page
    assert "<pre" not in page_of(LINES)


def test_a_page_in_a_file_and_in_a_notebook(tmp_path):
    page = ReportPage(TrainingRecord("mine", LINES))
    page.save(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == page.html()
    assert page._repr_html_().startswith("<iframe srcdoc=")
