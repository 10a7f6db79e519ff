"""A model that is handed on has a card: what is known of it, and what is not."""

import json
import shutil
from dataclasses import asdict

import pytest

from tests.random_bundle import random_bundle
from transduce.bundle import load_bundle, save_bundle
from transduce.cli import main
from transduce.evaluation import corpus_score
from transduce.inference import load
from transduce.viewing import ModelCard, ShownScore

pytest_plugins = ["tiny_run"]


def export(capsys, *arguments):
    """The status and what was said."""
    capsys.readouterr()
    status = main._run(["export", *map(str, arguments)])
    return status, capsys.readouterr().err


def section(card, title):
    """What stands below a heading."""
    return card.split(f"## {title}\n\n")[1].split("\n\n## ")[0].strip()


@pytest.fixture(scope="module")
def handed_on(trained_run, tmp_path_factory):
    """The trained run as the verb exports it, with scores and a licence."""
    folder = tmp_path_factory.mktemp("handed on")
    outputs = ["ti sor nal ved mup", "ved mup hax ti sor"]
    scores = [
        corpus_score("bleu", outputs, outputs),
        corpus_score("chrf", outputs, ["ti sor nal", "ved mup hax ti sor"]),
    ]
    (folder / "test.json").write_text(json.dumps([asdict(each) for each in scores]))
    (folder / "lines").write_text("bamo dulu kari\nwemo\n")
    line = ["export", trained_run, "--to", "safetensors", "--out", folder / "out", "--sentences", folder / "lines"]
    line += ["--licence", "cc-by-4.0", "--scores", folder / "test.json"]
    assert main._run([*map(str, line)]) == 0
    return folder / "out", scores


class TestOfARun:
    def test_the_folder_is_a_model(self, handed_on, trained_run):
        out, _ = handed_on
        assert (out / "model.safetensors").read_bytes() == (trained_run / "best" / "model.safetensors").read_bytes()
        assert load(out, "float32").translate("kari kari") == load(trained_run, "float32").translate("kari kari")
        certificate = json.loads((out / "certificate.json").read_text())
        assert (certificate["largest_difference"], certificate["equal"]) == (0, 2)

    def test_what_it_is_and_was_made_of(self, handed_on):
        card = (handed_on[0] / "README.md").read_text()
        assert card.startswith(
            "---\nlicense: cc-by-4.0\nlibrary_name: transduce\npipeline_tag: translation\n---\n\n# tiny\n"
        )
        assert "| d\\_model | 32 |" in section(card, "Model")
        assert "| train | corpus/train.src | 211 of 211 pairs kept" in section(card, "Data")
        assert "| warmup\\_steps | 60 |" in section(card, "Recipe")
        assert section(card, "Licence") == "cc-by-4.0"
        certificate = json.loads((handed_on[0] / "certificate.json").read_text())
        assert certificate["sha256"]["transduce"]["model.safetensors"] in section(card, "Model")

    def test_scores_have_signatures_where_they_were_kept(self, handed_on, trained_run):
        rows = section((handed_on[0] / "README.md").read_text(), "Scores").splitlines()[2:]
        bleu, chrf, *dev = rows
        signature = handed_on[1][0].signature.replace("|", "\\|")
        assert bleu == f"| BLEU | 100.00 | by test.json | {signature.replace('_', chr(92) + '_')} |"
        assert chrf.startswith(f"| chrF | {handed_on[1][1].value:.2f} | by test.json | nrefs:1")
        last = json.loads((trained_run / "metrics.jsonl").read_text().splitlines()[-1])
        assert f"| BLEU | {last['bleu']:.2f} | dev, step 400 | none was kept |" in dev

    def test_its_best_is_the_same_model(self, trained_run, tmp_path, capsys):
        out = tmp_path / "out"
        assert export(capsys, trained_run / "best", "--to", "safetensors", "--out", out, "--no-prove")[0] == 0
        assert "# tiny\n" in (out / "README.md").read_text()
        assert not (out / "certificate.json").exists()

    def test_without_a_report_nothing_is_known_of_what_was_kept(self, trained_run, tmp_path, capsys):
        run = shutil.copytree(trained_run, tmp_path / "run")
        (run / "store" / "report.txt").unlink()
        assert export(capsys, run, "--to", "safetensors", "--out", tmp_path / "out", "--no-prove")[0] == 0
        card = (tmp_path / "out" / "README.md").read_text()
        assert "| train | train.src | unknown |\n| dev | dev.src | unknown |" in section(card, "Data")


class TestOfAModelAlone:
    def test_what_is_not_known_is_said_to_be_unknown(self, tmp_path, capsys):
        save_bundle(random_bundle(), tmp_path / "found")
        assert (
            export(capsys, tmp_path / "found", "--to", "safetensors", "--out", tmp_path / "out", "--no-prove")[0] == 0
        )
        card = (tmp_path / "out" / "README.md").read_text()
        assert card.startswith("---\nlicense: unknown\n")
        for title in ("Data", "Recipe", "Scores", "Licence"):
            assert section(card, title).startswith("Unknown: the folder that this was exported from does not say it.")
        assert load_bundle(tmp_path / "out").config == load_bundle(tmp_path / "found").config


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--licence", "mit\nmodel: evil"], "give an identifier, such as apache-2.0"),
            (["--scores", "missing.json"], "missing.json: cannot be read"),
            (["--scores", "words"], "words: not readable JSON"),
            (["--scores", "other"], "other: is no list of scores, as transduce evaluate --json prints one"),
        ],
    )
    def test_what_a_card_cannot_say(self, tmp_path, capsys, monkeypatch, options, message):
        monkeypatch.chdir(tmp_path)
        save_bundle(random_bundle(), tmp_path / "model")
        (tmp_path / "words").write_text("bleu 31.2")
        (tmp_path / "other").write_text('[{"metric": "beauty", "value": 1, "signature": ""}]')
        status, shown = export(capsys, "model", "--to", "safetensors", "--out", "out", *options)
        assert (status, message in shown, shown.count("\n")) == (2, True, 1)
        assert {path.name for path in tmp_path.iterdir()} == {"model", "words", "other"}

    def test_other_formats_have_no_card(self, tmp_path, capsys):
        save_bundle(random_bundle(), tmp_path / "model")
        status, shown = export(
            capsys, tmp_path / "model", "--to", "onnx", "--out", tmp_path / "out", "--licence", "mit"
        )
        assert (status, "--to onnx writes none: leave them out" in shown) == (2, True)


def test_names_out_of_files_are_no_markup():
    card = ModelCard(
        "a|b\nc", "[x](http://y)", corpora=[("train", "<img>", "*")], scores=[ShownScore("BLEU", "1", "_")]
    )
    text = card.markdown()
    assert "# a\\|b c\n\n\\[x\\](http://y).\n" in text
    assert "| train | \\<img\\> | \\* |" in text
