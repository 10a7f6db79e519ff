"""Which metric says that a parser is the best, where its run file does not."""

import pytest

from transduce.config import read_run

DEV = {"trees": 'trees = "dev.trees"', "texts": 'source = "dev.de", target = "dev.en"'}


@pytest.mark.parametrize(
    ("dev", "said", "metric"),
    [
        ("trees", "", "brackets"),
        ("trees", "[train]\nmax_steps = 5", "brackets"),
        ("trees", '[train]\nbest_metric = "loss"', "loss"),
        ("trees", '[train]\nbest_metric = "bleu"', "bleu"),
        ("texts", "", "bleu"),
    ],
)
def test_a_treebank_is_measured_by_brackets_where_nothing_else_is_said(tmp_path, dev, said, metric):
    path = tmp_path / "run.toml"
    path.write_text(f"[data]\ntrain = {{ {DEV[dev]} }}\ndev = {{ {DEV[dev]} }}\n\n{said}\n", encoding="utf-8")
    assert read_run(path).train.best_metric == metric
