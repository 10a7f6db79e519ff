from pathlib import Path

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import (
    PRESETS,
    PUBLISHED,
    BadInputError,
    Corpus,
    DataConfig,
    GenerationConfig,
    RunConfig,
    SideConfig,
    TokenizerConfig,
    TrainConfig,
    preset,
    read_run,
    write_run,
)
from transduce.config.architectures import SECTIONS
from transduce.config.complaints import _OTHER_WORDS
from transduce.config.keys import section_at
from transduce.config.model import MOST_SYMBOLS

# Four lines: what a test appends begins in line 5.
DATA = """[data]
root = "corpus"
train = { source = "train.en", target = "train.de" }
dev = { source = "dev.en", target = "dev.de" }
"""


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(DATA, encoding="utf-8")
    return path


def complaint(path, settings=()):
    """What ``read_run`` objects to, which always fits on one line."""
    with pytest.raises(BadInputError) as caught:
        read_run(path, settings)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


class TestRoots:
    def test_the_files_is_relative_to_the_file(self, run_file, tmp_path, monkeypatch):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        config = read_run(Path("..") / "run.toml")
        assert config.data.root == str(tmp_path / "corpus")
        assert config.data.folder / str(config.data.dev.target) == tmp_path / "corpus" / "dev.de"

    def test_a_settings_is_relative_to_the_working_folder(self, run_file, tmp_path, monkeypatch):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert read_run(run_file, ["data.root=texts"]).data.root == str(tmp_path / "elsewhere" / "texts")

    def test_a_settings_may_look_like_a_number(self, run_file, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert read_run(run_file, ["data.root=2016"]).data.root == str(tmp_path / "2016")

    def test_left_out_it_is_the_files_folder(self, run_file, tmp_path):
        run_file.write_text(DATA.replace('root = "corpus"\n', ""))
        assert read_run(run_file).data.root == str(tmp_path)

    def test_an_absolute_one_stays(self, run_file, tmp_path):
        run_file.write_text(DATA.replace("corpus", str(tmp_path / "far")))
        assert read_run(run_file).data.root == str(tmp_path / "far")

    def test_one_that_is_no_text_is_refused(self, run_file):
        run_file.write_text(DATA.replace('"corpus"', "17"))
        assert f"{run_file} line 2: data.root = 17" in complaint(run_file)

    def test_one_with_a_nul_is_refused(self, run_file):
        run_file.write_text(DATA.replace("corpus", "cor\\u0000pus"))
        assert str(run_file) in complaint(run_file)


class TestSettings:
    def test_numbers_strings_and_booleans(self, run_file):
        config = read_run(
            run_file,
            [
                "train.max_steps=17",
                "train.learning_rate_factor=0.5",
                "train.adam_epsilon=1e-7",
                "train.precision=float32",
                'train.best_metric="loss"',
                "model.attention_bias=true",
                "generation.length_penalty=-1",
                "data.dev.source=other = file.en",
            ],
        )
        assert config.train == TrainConfig(
            max_steps=17, learning_rate_factor=0.5, adam_epsilon=1e-7, precision="float32", best_metric="loss"
        )
        assert config.model.attention_bias is True
        assert config.generation.length_penalty == -1
        assert config.data.dev == Corpus(source="other = file.en", target="dev.de")

    def test_they_win_over_the_file_and_the_last_over_the_first(self, run_file):
        run_file.write_text(DATA + "[train]\nmax_steps = 11\nseed = 13\n")
        config = read_run(run_file, ["train.max_steps=17", "train.max_steps=19"])
        assert (config.train.max_steps, config.train.seed) == (19, 13)

    def test_space_around_the_equals_sign_is_no_part_of_either(self, run_file):
        config = read_run(run_file, ["train.max_steps = 17", "train.precision = float32"])
        assert (config.train.max_steps, config.train.precision) == (17, "float32")

    @pytest.mark.parametrize("order", [1, -1])
    def test_a_preset_replaces_the_whole_model_whatever_the_order(self, run_file, order):
        run_file.write_text(DATA + '[model]\npreset = "big"\nnorm = "pre"\nd_ff = 17\n')
        settings = ["model.preset=tiny", "model.heads=2"][::order]
        assert read_run(run_file, settings).model == preset("tiny", {"heads": 2})

    def test_other_model_settings_go_on_top_of_the_files(self, run_file):
        run_file.write_text(DATA + '[model]\npreset = "tiny"\nnorm = "pre"\n')
        assert read_run(run_file, ["model.d_model=64"]).model == preset("tiny", {"norm": "pre", "d_model": 64})

    @pytest.mark.parametrize("setting", ["train.max_steps", "=17", " =17", ""])
    def test_what_is_no_setting_is_shown_one(self, run_file, setting):
        assert "expected key=value, for example --set train.max_steps=500" in complaint(run_file, [setting])

    @pytest.mark.parametrize(
        ("setting", "expected"),
        [
            ("train.max_steps=0", "--set train.max_steps = 0: must be at least 1"),
            ("train.max_steps=many", "--set train.max_steps = 'many': must be a whole number, such as 100000"),
            ("train.max_steps=", "--set train.max_steps = '': "),
            ("train.max_step=17", "--set train.max_step: unknown key: did you mean train.max_steps?"),
            ("data.train.sorce=x", "--set data.train.sorce: unknown key: did you mean data.train.source?"),
            ("train=17", "--set train = 17: "),
            ("data.root.deeper=x", "--set data.root.deeper: root is a value, not a section"),
            ("trian.max_steps=17", "--set trian.max_steps: unknown key: did you mean train?"),
            ("train.max_steps.deeper=17", "--set train.max_steps.deeper: "),
            ("train={max_step=17}", "--set train: train.max_step: unknown key: did you mean train.max_steps?"),
            ("model.preset=tny", "--set model.preset = 'tny' is unknown"),
            ("model.vocab_size=17", "--set model.vocab_size follows from the tokenizer"),
        ],
    )
    def test_a_wrong_one_is_named_as_given(self, run_file, setting, expected):
        assert complaint(run_file, [setting]).startswith(expected)


SEVERAL = """
[data]
dev = { pairs = "dev.tsv" }

[[data.train]]
source = "train.en"
target = "train.de"

[[data.train]]
pairs = "back.tsv"  # made by a model
weight = 0.5
tag = "<bt>"
"""


class TestSeveralCorpora:
    def test_one_table_is_one_corpus(self, run_file):
        assert read_run(run_file).data.train == (Corpus(source="train.en", target="train.de"),)

    def test_each_has_its_own_settings(self, run_file):
        run_file.write_text(SEVERAL)
        config = read_run(run_file, ["data.train.0.weight=3", "data.train.1.lines=[2, 7]"])
        assert config.data.train == (
            Corpus(source="train.en", target="train.de", weight=3),
            Corpus(pairs="back.tsv", weight=0.5, tag="<bt>", lines=(2, 7)),
        )
        assert config.data.tags == ("<bt>",)

    def test_a_setting_of_the_only_one_has_no_number(self, run_file):
        assert read_run(run_file, ["data.train.weight=3"]).data.train[0].weight == 3

    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            ("weight =", "wieght =", "line 11: data.train.1.wieght: unknown key: did you mean data.train.1.weight?"),
            ("0.5", "0", "line 11: data.train.1.weight = 0: must be more than 0"),
            ("weight = 0.5", "lines = [3, 2]", "line 11: data.train.1.lines = [3, 2]: give the first and the last"),
            ("weight = 0.5", "lines = [0, 2]", "line 11: data.train.1.lines = [0, 2]: give the first and the last"),
            ("weight = 0.5", "lines = 3", "line 11: data.train.1.lines = 3: "),
            ('"<bt>"', '"< bt >"', "line 12: data.train.1.tag = '< bt >': '< bt >' is not one word"),
            ('target = "train.de"', "", "line 5: data.train.0: a corpus is a source and a target file, or one file"),
            ('pairs = "back.tsv"', "", "line 9: data.train.1: a corpus is a source and a target file, or one file"),
            ('target = "train.de"', 'pairs = "both"', "line 5: data.train.0: a corpus is a source and a target file"),
            ('target = "train.de"', "target = 3", "line 7: data.train.0.target = 3: "),
            ("weight = 0.5", "pattern = '('", "line 11: data.train.1.pattern = '(': not a regular expression: "),
            (
                "weight = 0.5",
                "pattern = '(?P<source>.*)'",
                "line 11: data.train.1.pattern = '(?P<source>.*)': has no group (?P<target>...)",
            ),
            (
                'target = "train.de"',
                "target = 'b'\npattern = '(?P<source>.)(?P<target>.)'",
                "line 5: data.train.0: pattern is for one file of pairs",
            ),
            ('pairs = "back.tsv"', 'made_up = "cpy"', "line 10: data.train.1.made_up = 'cpy': "),
            ('dev.tsv"', 'dev.tsv", weight = 2', "line 2: data: dev.weight = 2 is for training corpora: leave it out"),
            ('dev.tsv"', 'dev.tsv", weigth = 2', "line 3: data.dev.weigth: unknown key: did you mean data.dev.weight?"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_line(self, run_file, old, new, expected):
        assert SEVERAL.count(old) == 1
        run_file.write_text(SEVERAL.replace(old, new))
        assert complaint(run_file).startswith(f"{run_file} {expected}")

    @pytest.mark.parametrize(
        ("setting", "expected"),
        [
            ("data.train.1.weight=0", "--set data.train.1.weight = 0: must be more than 0"),
            ("data.train.1.wieght=1", "--set data.train.1.wieght: unknown key: did you mean data.train.1.weight?"),
            ("data.train.2.weight=1", "--set data.train.2.weight: train has several tables: data.train.0 is the first"),
            ("data.train.x.weight=1", "--set data.train.x.weight: train has several tables: data.train.0 is the first"),
            ("data.train.weight=1", "--set data.train.weight: train has several tables: data.train.0 is the first"),
            ("data.train.0=1", "--set data.train.0: train has several tables: data.train.0 is the first"),
            ("data.train=[]", "--set data.train = []: there is no corpus to train on"),
        ],
    )
    def test_a_wrong_setting_is_named_as_given(self, run_file, setting, expected):
        run_file.write_text(SEVERAL)
        assert complaint(run_file, [setting]).startswith(expected)

    @pytest.mark.parametrize("value", ["[]", "[3]", "['train.tsv']", "'train.tsv'", "3"])
    def test_what_is_no_corpus_is_refused(self, run_file, value):
        run_file.write_text(f"[data]\ndev = {{ pairs = 'dev.tsv' }}\ntrain = {value}\n")
        assert complaint(run_file).startswith(f"{run_file} line 3: data.train")

    def test_more_than_the_store_can_number_are_refused(self, run_file):
        for count, refused in ((256, False), (257, True)):
            run_file.write_text(SEVERAL + "[[data.train]]\npairs = 'more.tsv'\n" * (count - 2))
            if refused:
                assert "at most 256 corpora" in complaint(run_file)
            else:
                assert len(read_run(run_file).data.train) == count

    def test_tags_are_those_of_all_corpora_each_once(self, run_file):
        run_file.write_text(SEVERAL.replace('"dev.tsv"', '"dev.tsv", tag = "<dev>"') + "[[data.train]]\ntag = '<bt>'\n")
        config = read_run(run_file, ["data.train.2.made_up=copy", 'data.test={pairs="t.tsv", tag="<test>"}'])
        assert config.data.tags == ("<bt>", "<dev>", "<test>")


class TestVocabularies:
    def read(self, run_file, text, settings=()):
        run_file.write_text(f"{DATA}{text}")
        return read_run(run_file, settings).tokenizer

    def test_one_is_shared(self, run_file):
        config = self.read(run_file, "[tokenizer]\nkind = 'words'\nvocab_size = 97\n")
        assert config.shared
        assert config.sides == (config,)
        assert (config.kind, config.vocab_size) == ("words", 97)

    def test_a_side_has_what_the_table_above_says_where_it_says_nothing(self, run_file):
        text = "[tokenizer]\nkind = 'words'\nvocab_size = 97\nsymbols = ['<en>']\n[tokenizer.source]\nvocab_size = 89\n"
        config = self.read(run_file, text + "[tokenizer.target]\nkind = 'wordpiece'\n")
        assert not config.shared
        assert config.sides == (config.source, config.target)
        assert config.source == SideConfig(kind="words", vocab_size=89)
        assert config.target == SideConfig(kind="wordpiece", vocab_size=97)

    def test_a_path_is_handed_down_to_its_own_kind_only(self, run_file):
        text = "[tokenizer]\nkind = 'existing'\npath = 'older'\n[tokenizer.source]\n[tokenizer.target]\nkind = 'bpe'\n"
        config = self.read(run_file, text)
        assert config.source == SideConfig(kind="existing", path="older")
        assert config.target == SideConfig(kind="bpe")

    def test_settings_make_sides(self, run_file):
        config = self.read(run_file, "", ["tokenizer.source.kind=words", "tokenizer.target.vocab_size=499"])
        assert config.sides == (SideConfig(kind="words"), SideConfig(vocab_size=499))

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                "[tokenizer]\nkind = 'existing'\n",
                "line 5: tokenizer: kind = 'existing' reads a tokenizer: name it with",
            ),
            ("[tokenizer]\nkind = 'sentencepiece'\n", "line 5: tokenizer: kind = 'sentencepiece' reads a tokenizer"),
            ("[tokenizer]\npath = 'x'\n", "line 5: tokenizer: kind = 'bpe' learns a tokenizer: path is for"),
            (
                "[tokenizer]\nkind = 'characters'\nvocab_size = 299\n",
                "line 5: tokenizer: vocab_size = 299 is too small",
            ),
            (
                "[tokenizer]\nkind = 'words'\nbpe_dropout = 0.1\n",
                "line 5: tokenizer: bpe_dropout = 0.1 is for kind = 'bpe', of one side at least",
            ),
            (
                "[tokenizer]\nbpe_dropout = 0.1\nkind = 'words'\n[tokenizer.source]\n[tokenizer.target]\n",
                "line 5: tokenizer: bpe_dropout = 0.1 is for kind = 'bpe', of one side at least",
            ),
            (
                "[tokenizer.source]\nkind = 'words'\n",
                "line 5: tokenizer: where one side has its own vocabulary, both do: add [tokenizer.target]",
            ),
            (
                "[tokenizer.target]\n",
                "line 5: tokenizer: where one side has its own vocabulary, both do: add [tokenizer.source]",
            ),
            (
                "[tokenizer.source]\n[tokenizer.target]\n\nvocab_siz = 300\n",
                "line 8: tokenizer.target.vocab_siz: unknown key: did you mean tokenizer.target.vocab_size?",
            ),
            (
                "[tokenizer.source]\nsymbols = ['<en>']\n[tokenizer.target]\n",
                "line 6: tokenizer.source.symbols: unknown key: known are kind, vocab_size, path",
            ),
            (
                "[tokenizer]\nkind = 'words'\nvocab_size = 97\n[tokenizer.source]\n[tokenizer.target]\nkind = 'bpe'\n",
                "line 9: tokenizer.target: vocab_size = 97 is too small for bpe: 300 or more",
            ),
            ("[tokenizer]\nsource = 3\n", "line 6: tokenizer.source = 3: "),
        ],
    )
    def test_what_is_wrong_is_named_with_its_line(self, run_file, text, expected):
        run_file.write_text(DATA + text)
        assert complaint(run_file).startswith(f"{run_file} {expected}")

    @pytest.mark.parametrize("size", ["vocab_size", "source_vocab_size"])
    def test_the_models_sizes_follow_from_them(self, run_file, size):
        run_file.write_text(f"{DATA}[model]\n{size} = 997\n")
        assert complaint(run_file).startswith(f"{run_file} line 6: model.{size} follows from the tokenizer")
        assert complaint(run_file, [f"model.{size}=997"]).startswith(f"--set model.{size} follows from the tokenizer")


class TestModelSection:
    def test_left_out_it_is_the_base_model(self, run_file):
        assert read_run(run_file).model == PRESETS["base"]

    def test_a_preset_with_changes(self, run_file):
        run_file.write_text(DATA + '[model]\npreset = "tiny"\nd_model = 64\n')
        model = read_run(run_file).model
        assert (model.d_model, model.d_k, model.encoder_layers) == (64, 16, 4)

    def test_an_unknown_preset_lists_the_known_ones(self, run_file):
        run_file.write_text(DATA + '[model]\npreset = "tny"\n')
        message = complaint(run_file)
        assert message.startswith(str(run_file))
        assert "model.preset = 'tny' is unknown: choose base, big, tiny" in message

    def test_values_that_do_not_fit_each_other_are_named(self, run_file):
        run_file.write_text(DATA + "[model]\nheads = 3\n")
        assert complaint(run_file).startswith(f"{run_file} line 5: model: heads = 3 does not divide d_model = 512")

    def test_what_was_asked_for_of_a_preset_is_checked(self, run_file):
        """Not the same changes of base, which 256 heads divide."""
        run_file.write_text(DATA + '[model]\npreset = "tiny"\nheads = 256\n')
        assert complaint(run_file) == (
            f"{run_file} line 5: model: heads = 256 does not divide d_model = 128: choose a divisor of 128, or give "
            f"d_k and d_v (d_model = 128 comes from the preset 'tiny')"
        )

    def test_a_setting_that_does_not_fit_the_preset_is_named_as_given(self, run_file):
        run_file.write_text(DATA + '[model]\npreset = "tiny"\n')
        assert complaint(run_file, ["model.heads=3"]) == (
            "--set model.heads: heads = 3 does not divide d_model = 128: choose a divisor of 128, or give d_k and d_v "
            "(d_model = 128 comes from the preset 'tiny')"
        )
        run_file.write_text(DATA + "[model]\nheads = 3\n")
        assert complaint(run_file, ["model.preset=tiny", "model.heads=3"]).startswith("--set model.heads: heads = 3 ")

    def test_a_published_choice_that_a_change_makes_idle_is_refused(self, run_file):
        """Today's base with such positions, and nothing of tensor2tensor's, was trained before."""
        run_file.write_text(DATA + '[model]\npreset = "t2t-base-v1"\npositions = "relative"\n')
        message = complaint(run_file)
        assert "or give its default 'interleaved', as positions is 'relative'" in message
        assert "(sinusoid_layout = 'concatenated' comes from the preset 't2t-base-v1'" in message
        read_run(run_file, ["model.sinusoid_layout=interleaved", "model.sinusoid_range=open"])

    def test_a_preset_of_the_regime_is_named(self, run_file):
        run_file.write_text(DATA + '[model]\npreset = "big"\n[train]\nkeep_checkpoints = 5\n')
        assert complaint(run_file).endswith("raise that (average_last = 20 comes from the preset 'big')")

    def test_a_preset_that_replaces_the_files_model_says_what_goes(self, run_file, caplog):
        run_file.write_text(DATA + '[model]\npreset = "big"\nnorm = "pre"\nd_ff = 17\n')
        read_run(run_file, ["model.preset=tiny"])
        assert "--set model.preset=tiny replaces all of [model]: what the file says of d_ff, norm is not" in caplog.text

    def test_a_wrong_value_beside_a_preset_is_found(self, run_file):
        run_file.write_text(DATA + '[model]\npreset = "tiny"\n\ndropout = 1.5\n')
        assert complaint(run_file) == f"{run_file} line 8: model.dropout = 1.5: must be at least 0 and less than 1"


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("text", "line", "key", "nearest"),
        [
            (DATA + "[train]\nseed = 1\nmax_step = 3\n", 7, "train.max_step", "train.max_steps"),
            (DATA + "[trian]\nmax_steps = 3\n", 5, "trian", "train"),
            (DATA + "[model]\npreset = 'tiny'\nd_modl = 3\n", 7, "model.d_modl", "model.d_model"),
            (DATA + "[model]\npresett = 'tiny'\n", 6, "model.presett", "model.preset"),
            ("tokenizer.vocabsize = 997\n" + DATA, 1, "tokenizer.vocabsize", "tokenizer.vocab_size"),
            (DATA + "generation = { beam = 4, beam_sise = 3 }\n", 5, "data.generation", None),
            ("generation = { beam_sise = 3 }\n" + DATA, 1, "generation.beam_sise", "generation.beam_size"),
            (DATA + "[ train ] # [data]\n\n'max_step' = 3 # seed = 4\n", 7, "train.max_step", "train.max_steps"),
            ("\n[train]\r\nmax_step = 3\r\n" + DATA, 3, "train.max_step", "train.max_steps"),
            # A key that takes a required one's place is what is wrong, not that the other is missing.
            (
                DATA.replace("dev.en", "x").replace('target = "dev', 'targets = "dev'),
                4,
                "data.dev.targets",
                "data.dev.target",
            ),
            ("\n" + DATA.replace("dev =", "dve ="), 5, "data.dve", "data.dev"),
        ],
    )
    def test_the_line_and_the_nearest_known_key_are_named(self, run_file, text, line, key, nearest):
        run_file.write_bytes(text.encode())
        expected = f"{run_file} line {line}: {key}: unknown key" + (f": did you mean {nearest}?" if nearest else "")
        assert complaint(run_file).startswith(expected)

    @pytest.mark.parametrize(
        ("architecture", "key", "advice"),
        [
            ("recurrent", "attention_scores", "did you mean model.attention_score?"),
            ("recurrent", "heads", "it is a setting of architecture = 'transformer', and this model's is 'recurrent'"),
            ("convolutional", "kernel", "did you mean model.kernel_width?"),
            (
                "convolutional",
                "hidden_size",
                "it is a setting of architecture = 'recurrent', and this model's is 'con",
            ),
            ("recurrent", "width", "known are architecture, cell, encoder_layers"),
            ("transformer", "width", "did you mean model.d_model?"),
            ("transformer", "hidden_size", "did you mean model.d_model?"),
        ],
    )
    def test_the_models_keys_are_those_of_its_architecture(self, run_file, architecture, key, advice):
        run_file.write_text(DATA + f"[model]\narchitecture = '{architecture}'\n{key} = 17\n")
        assert complaint(run_file).startswith(f"{run_file} line 7: model.{key}: unknown key: {advice}")

    def test_a_preset_of_another_architecture_is_what_is_wrong(self, run_file):
        run_file.write_text(DATA + "[model]\npreset = 'gnmt'\narchitecture = 'convolutional'\nkernel_width = 3\n")
        assert complaint(run_file) == (
            f"{run_file} line 6: model.preset = 'gnmt': is of architecture = 'recurrent', and 'convolutional' stands "
            "beside it: leave one of them out"
        )

    def test_where_nothing_is_near_the_known_ones_are_listed(self, run_file):
        run_file.write_text(DATA + "[tokenizer]\nqqq = 3\n")
        assert complaint(run_file) == f"{run_file} line 6: tokenizer.qqq: unknown key: known are " + ", ".join(
            TokenizerConfig.model_fields
        )

    @given(name=st.text(min_size=1))
    def test_any_name_is_refused_on_one_line(self, tmp_path_factory, name):
        path = tmp_path_factory.getbasetemp() / "any-name.toml"
        path.write_text(DATA + tomlkit.dumps({"extra": {name: 17}}), encoding="utf-8")
        assert f"{path} line 5: extra: unknown key" in complaint(path)
        path.write_text(DATA + tomlkit.dumps({"tokenizer": {name: 17}}), encoding="utf-8")
        assert str(path) in complaint(path)


class TestWrongValues:
    @pytest.mark.parametrize(
        ("section", "key", "value", "shown"),
        [
            ("train", "max_steps", "0", "0"),
            ("train", "max_steps", "2.5", "2.5"),
            ("train", "max_steps", "true", "True"),
            ("train", "seed", "-1", "-1"),
            ("train", "batch_tokens", "'many'", "'many'"),
            ("train", "precision", "'float64'", "'float64'"),
            ("train", "precision", "'int8'", "'int8'"),
            ("train", "adam_beta2", "1.0", "1.0"),
            ("train", "learning_rate_factor", "inf", "inf"),
            ("train", "learning_rate_factor", "nan", "nan"),
            ("tokenizer", "vocab_size", "4", "4"),
            ("tokenizer", "kind", "'wrds'", "'wrds'"),
            ("tokenizer", "bpe_dropout", "1.0", "1.0"),
            ("tokenizer", "learn_from", "0", "0"),
            ("tokenizer", "symbols", "['a', 'a']", "['a', 'a']"),
            ("tokenizer", "symbols", "['a b']", "['a b']"),
            ("generation", "beam_size", "0", "0"),
            ("generation", "length_penalty", "nan", "nan"),
            ("generation", "length_penalty_kind", "'amun'", "'amun'"),
            ("model", "norm", "'sandwich'", "'sandwich'"),
        ],
    )
    def test_file_line_key_and_value_are_named(self, run_file, section, key, value, shown):
        run_file.write_text(f"{DATA}# {key} = 5\n[{section}]\n\n{key} = {value}\n")
        assert complaint(run_file).startswith(f"{run_file} line 8: {section}.{key} = {shown}: ")

    def test_a_format_that_cannot_be_trained_in_says_why(self, run_file):
        run_file.write_text(f"{DATA}[train]\nprecision = 'int8'\n")
        assert "whole numbers have no gradients" in complaint(run_file)

    @pytest.mark.parametrize(
        ("key", "value", "shown"),
        [
            ("max_length_ratio", "1", "1"),
            ("duplicates", "'drp'", "'drp'"),
            ("dev_overlap", "true", "True"),
            ("invalid_utf8", "'keep'", "'keep'"),
        ],
    )
    def test_of_the_data_too(self, run_file, key, value, shown):
        run_file.write_text(f"{DATA}\n{key} = {value}\n")
        assert complaint(run_file).startswith(f"{run_file} line 6: data.{key} = {shown}: ")

    def test_values_that_need_each_other_are_named_at_their_table(self, run_file):
        run_file.write_text(DATA + "[tokenizer]\nvocab_size = 299\n")
        expected = f"{run_file} line 5: tokenizer: vocab_size = 299 is too small for bpe: 300 or more"
        assert complaint(run_file) == expected

    def test_the_same_key_of_another_section_is_another_line(self, run_file):
        run_file.write_text(DATA.replace("[data]", "[data]\nmax_length = 1") + "[train]\nmax_steps = 3\n")
        assert complaint(run_file).startswith(f"{run_file} line 2: data.max_length = 1: ")

    def test_text_of_several_lines_is_no_key(self, run_file):
        text = DATA.replace('"corpus"', '"""\n[train]\nmax_steps = 1\n"""') + "[train]\nmax_steps = 0\n"
        run_file.write_text(text)
        assert complaint(run_file).startswith(f"{run_file} line 9: train.max_steps = 0: ")

    def test_a_section_that_is_a_value(self, run_file):
        run_file.write_text("model = 'base'\n" + DATA)
        assert complaint(run_file).startswith(f"{run_file} line 1: model = 'base': ")


def complaints(path, settings=()):
    """All that ``read_run`` objects to."""
    with pytest.raises(BadInputError) as caught:
        read_run(path, settings)
    assert str(caught.value) == "\n".join(caught.value.args)
    return list(caught.value.args)


class TestSeveralErrors:
    def test_all_are_shown_in_the_files_order(self, run_file):
        run_file.write_text(DATA + "[tokenizer]\nkid = 3\n[train]\nmax_steps = 0\nlog_every = true\nseed = -1\n")
        assert complaints(run_file, ["generation.beam_size=0"]) == [
            "--set generation.beam_size = 0: must be at least 1 and at most 1,024",
            f"{run_file} line 6: tokenizer.kid: unknown key: did you mean tokenizer.kind?",
            f"{run_file} line 8: train.max_steps = 0: must be at least 1",
            f"{run_file} line 9: train.log_every = True: must be a whole number, such as 50",
            f"{run_file} line 10: train.seed = -1: must be at least 0",
        ]

    def test_values_that_do_not_fit_each_other_hide_nothing_and_are_not_hidden(self, run_file):
        run_file.write_text(DATA + '[model]\nheads = 3\ndropout = 2\nnorm = "both"\n[train]\naverage_last = 7\n')
        assert [message.removeprefix(f"{run_file} line ") for message in complaints(run_file)] == [
            "5: model: heads = 3 does not divide d_model = 512: choose a divisor of 512, or give d_k and d_v "
            "(d_model = 512 is the default)",
            "7: model.dropout = 2: must be at least 0 and less than 1",
            "8: model.norm = 'both': must be 'post' or 'pre'",
            "9: train: average_last = 7 needs as many checkpoints, but keep_checkpoints = 5: raise that "
            "(keep_checkpoints = 5 is the default)",
        ]

    @pytest.mark.parametrize("d_model", ["d_model = '48'", "d_modl = 48"])
    def test_what_may_follow_from_another_error_is_not_claimed(self, run_file, d_model):
        run_file.write_text(DATA + f"[model]\nheads = 3\n{d_model}\n")
        assert complaint(run_file).startswith(f"{run_file} line 7: model.d_mod")

    def test_sections_that_do_not_fit_each_other_are_named_by_the_file(self, run_file):
        run_file.write_text(DATA + '[model]\npositions = "learned"\nmax_positions = 100\n')
        assert complaint(run_file).startswith(f"{run_file}: data.max_length = 256 is beyond")

    def test_settings_that_are_none_are_all_shown(self, run_file):
        found = complaints(run_file, ["max_steps", "data.root.deeper=3", "=4"])
        assert [message.split(":")[0] for message in found] == ["--set max_steps", "--set =4", "--set data.root.deeper"]

    def test_an_unknown_preset_hides_no_other_error(self, run_file):
        run_file.write_text(DATA + '[model]\npreset = "tny"\nheads = 3\nvocab_size = 7\nd_ff = 0\n')
        assert [message.removeprefix(f"{run_file} line ")[:30] for message in complaints(run_file)] == [
            "8: model.vocab_size follows fr",
            "6: model.preset = 'tny' is unk",
            "9: model.d_ff = 0: must be at ",
        ]
        assert "(did you mean 'tiny'?)" in "".join(complaints(run_file))

    def test_beyond_measure_they_are_counted(self, run_file):
        run_file.write_text(DATA + "[train]\n" + "".join(f"q{number} = 1\n" for number in range(29)))
        assert len(found := complaints(run_file)) == 21
        assert found[-1] == f"{run_file}: and 9 more"


class TestWords:
    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            ("train.max_steps", "'5,000'", "must be a whole number: write 5000"),
            ("train.max_steps", "1e3", "must be a whole number: write 1000"),
            ("train.max_steps", "2.5", "must be a whole number, such as 100000"),
            ("train.max_steps", "1979-05-27", "must be a whole number, such as 100000"),
            ("train.learning_rate_factor", "'.5'", "must be a number: write 0.5"),
            ("train.learning_rate_factor", "'high'", "must be a number, such as 1.0"),
            ("train.learning_rate_factor", "inf", "must be a finite number, neither inf nor nan"),
            ("train.tensorboard", "'True'", "must be true or false: write true"),
            ("train.tensorboard", "0", "must be true or false: write false"),
            ("train.tensorboard", "'maybe'", "must be true or false"),
            ("train.precision", "'bf16'", "must be 'auto', 'float32' or 'bfloat16': did you mean 'bfloat16'?"),
            ("tokenizer.symbols", "'<en>'", 'must be a list, such as ["<en>", "<formal>"]'),
            ("tokenizer.symbols", "[1]", 'must be text in quotes: write "1"'),
            ("tokenizer.vocab_size", "1", "must be at least 5 and at most 16,777,216"),
            ("tokenizer.path", "2016", 'must be text in quotes: write "2016"'),
            ("data.dev", "'dev.en'", 'must be a table of keys, such as { source = "dev.en", target = "dev.de" }'),
            ("data.dev.lines", "5000", "must be a list, such as [1, 5000]"),
            ("data.dev.lines", "[1]", "must be a list of two numbers, such as [1, 5000]"),
            ("data.dev.lines", "[1, 2, 3]", "must be a list of two numbers, such as [1, 5000]"),
            ("data.dev.tag", "''", "must not be empty"),
            ("data.max_length_ratio", "1", "must be more than 1"),
            ("tokenizer.source", "'x'", "must be a table of keys"),
            ("train", "100", "must be a section: write [train] on a line of its own, and its keys below"),
        ],
    )
    def test_what_would_be_right_is_said(self, run_file, key, value, expected):
        assert complaint(run_file, [f"{key}={value}"]).endswith(f": {expected}")

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (
                '"train.en"',
                "data.train = 'train.en': must be a table of keys, such as { source = \"train.en\", target = ",
            ),
            ('["a", "b"]', "data.train.0 = 'a': must be a table of keys, such as { source = "),
            ('{ source = ["a", "b"], target = "c" }', "data.train.source = ['a', 'b']: must be one file: "),
        ],
    )
    def test_of_corpora_too(self, run_file, value, expected):
        run_file.write_text(DATA.replace('{ source = "train.en", target = "train.de" }', value))
        assert complaints(run_file)[0].startswith(f"{run_file} line 3: {expected}")

    def test_a_key_of_another_section_is_shown_home(self, run_file):
        run_file.write_text(DATA + "[train]\nvocab_size = 8000\n")
        assert complaint(run_file) == f"{run_file} line 6: train.vocab_size: unknown key: it belongs into [tokenizer]"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (DATA + "source = 'x'\n", "data.source: unknown key: it belongs into data.train or data.dev or data.test"),
            (DATA + "preset = 'tiny'\n", "data.preset: unknown key: it belongs into [model]"),
            ("max_steps = 3\n" + DATA, "max_steps: unknown key: it belongs into [train]"),
            (DATA + "generation = {}\n", "data.generation: unknown key: it is a section of its own, [generation]"),
            (DATA + "[train]\nepochs = 3\n", "train.epochs: unknown key: did you mean train.max_steps (doctor says "),
            (DATA + "[model]\nhidden_size = 3\n", "model.hidden_size: unknown key: did you mean model.d_model?"),
            (DATA + "[model]\nvocab_siz = 3\n", "model.vocab_siz: unknown key: known are architecture, "),
        ],
    )
    def test_what_was_meant_is_said(self, run_file, text, expected):
        run_file.write_text(text)
        assert complaint(run_file).split(": ", 1)[1].startswith(expected)

    def test_what_other_toolkits_say_is_known_here(self):
        for meant in _OTHER_WORDS.values():
            section, key = meant.split()[0].split(".")
            assert key in section_at((section,)).model_fields

    def test_a_long_value_is_cut(self, run_file):
        assert len(complaint(run_file, [f"train.max_steps={'x' * 1000}"])) < 200

    def test_no_phrase_of_the_library_is_left(self, run_file):
        """Whatever stands in place of whatever: the answer is in our words."""
        wrong = ["17", "2.5", "true", "''", "'word'", "[]", "[1]", "['a']", "[[1]]", "{}", "{a=1}", "1979-05-27", "nan"]
        fields = {name: field.annotation for name, field in RunConfig.model_fields.items() if name != "model"}
        kinds = [([], name, section) for name, section in fields.items()]
        kinds += [([f"model.architecture={name}"], "model", section) for name, section in SECTIONS.items()]
        for settings, name, section in kinds:
            for key in section.model_fields:
                for value in wrong:
                    try:
                        read_run(run_file, [*settings, f"{name}.{key}={value}"])
                    except BadInputError as error:
                        assert "nput should" not in str(error)
                        assert " valid" not in str(error)


class TestWhatIsMissing:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                "",
                ": data: is missing and has no default: write [data] on a line of its own, and below it train and",
            ),
            ("[train]\nseed = 3\n", ": data: is missing"),
            (DATA.partition("dev =")[0], " line 1: data.dev: is missing and has no default, such as { source = "),
            (
                "\n" + DATA.replace(', target = "train.de"', ""),
                " line 4: data.train: a corpus is a source and a target file, or one file of pairs, or a treebank, "
                "or a made-up task; "
                "given is source",
            ),
            (
                DATA.replace('{ source = "dev.en", ', "{ "),
                " line 4: data.dev: a corpus is a source and a target file, or one file of pairs, or a treebank, "
                "or a made-up task; "
                "given is target",
            ),
        ],
    )
    def test_is_named_with_the_table_that_should_hold_it(self, run_file, text, expected):
        run_file.write_text(text)
        assert complaint(run_file).startswith(f"{run_file}{expected}")


class TestUnreadableFiles:
    def test_missing(self, tmp_path):
        assert complaint(tmp_path / "none.toml") == f"{tmp_path / 'none.toml'}: no such run file"

    def test_a_directory(self, tmp_path):
        assert complaint(tmp_path).startswith(f"{tmp_path}: is a directory: give the run file inside it")

    def test_below_a_file(self, run_file):
        assert complaint(run_file / "run.toml").startswith(f"{run_file / 'run.toml'}: ")

    def test_not_utf8(self, run_file):
        run_file.write_bytes(DATA.encode() + b"# gr\xfc\xdfe\n")
        assert complaint(run_file).startswith(f"{run_file} line 5: not UTF-8 text")

    def test_broken_toml_names_the_line(self, run_file):
        run_file.write_text(DATA + "[train]\nmax_steps = \n")
        message = complaint(run_file)
        assert message.startswith(f"{run_file}: not a TOML file: ")
        assert "line 6" in message

    @pytest.mark.parametrize(
        ("line", "advice"),
        [
            (
                "precision = float32  # fast",
                "'precision = float32  # fast': write precision = \"float32\"",
            ),
            ("tensorboard = True", "'tensorboard = True': write tensorboard = true"),
            ("max_steps 100", "'max_steps 100'"),
        ],
    )
    def test_the_line_that_is_no_toml_is_shown_with_what_is_most_often_wrong(self, run_file, line, advice):
        run_file.write_text(f"{DATA}[train]\n{line}\n")
        message = complaint(run_file)
        assert "at line 6" in message
        assert message.endswith(f": {advice}")

    def test_a_byte_order_mark_is_no_part_of_the_text(self, run_file):
        run_file.write_bytes(b"\xef\xbb\xbf" + DATA.encode())
        assert read_run(run_file).data.dev.source == "dev.en"

    @given(junk=st.text())
    def test_any_text_is_a_run_or_bad_input(self, tmp_path_factory, junk):
        path = tmp_path_factory.getbasetemp() / "any-text.toml"
        path.write_text(DATA + junk, encoding="utf-8")
        try:
            assert read_run(path).data.dev.source == "dev.en"
        except BadInputError as error:
            for message in error.args:  # one for each thing that is wrong
                assert message.startswith(str(path))
                assert len(message.splitlines()) == 1


def corpora():
    """Every form of corpus, with every way to take a part of it."""
    name = st.text(st.characters(exclude_categories=["Cs"]))
    first = st.integers(1, 2**53)
    lines = st.tuples(first, first).map(sorted).map(tuple)
    common = {
        "lines": st.none() | lines,
        "weight": st.floats(min_value=0, exclude_min=True, allow_infinity=False),
        "tag": st.none() | st.sampled_from(["<bt>", '"', "[data]", "ä#="]),
    }
    pattern = st.none() | st.just(r"IN: (?P<source>.*)\tOUT: '(?P<target>[^\"]*)'")
    return st.one_of(
        st.builds(Corpus, source=name, target=name, **common),
        st.builds(Corpus, pairs=name, pattern=pattern, source_field=name, target_field=name, **common),
        st.builds(Corpus, made_up=st.just("copy"), count=first, seed=st.integers(0, 2**53), **common),
    )


def vocabularies():
    return st.one_of(
        st.builds(SideConfig, kind=st.sampled_from(["bpe", "characters"]), vocab_size=st.integers(300, MOST_SYMBOLS)),
        st.builds(SideConfig, kind=st.sampled_from(["words", "wordpiece"]), vocab_size=st.integers(5, MOST_SYMBOLS)),
        st.builds(SideConfig, kind=st.sampled_from(["existing", "sentencepiece"]), path=st.sampled_from("a#'")),
    )


def tokenizers():
    symbols = st.sampled_from([(), ("<en>",), ("<en>", '"', "ü")])
    shared = vocabularies().map(SideConfig.model_dump)
    sides = st.fixed_dictionaries({"source": vocabularies(), "target": vocabularies()})
    return st.tuples(shared, st.just({}) | sides, symbols, st.integers(1, 2**53)).map(
        lambda drawn: TokenizerConfig(**drawn[0], **drawn[1], symbols=drawn[2], learn_from=drawn[3])
    )


class TestRoundTrip:
    def test_what_is_written_is_read_again(self, run_file):
        run_file.write_text(DATA + '[model]\npreset = "tiny"\nnorm = "pre"\n[train]\nadam_epsilon = 1e-7\nseed = 17\n')
        config = read_run(run_file, ["tokenizer.vocab_size=997"])
        written = run_file.with_name("written.toml")
        write_run(config, written)
        assert read_run(written) == config

    def test_the_sizes_of_a_built_model_are_left_out(self, run_file):
        config = read_run(run_file)
        sizes = config.model.model_copy(update={"vocab_size": 31, "source_vocab_size": 43})
        write_run(config.model_copy(update={"model": sizes}), run_file)
        assert read_run(run_file) == config

    def test_it_is_the_same_from_every_folder(self, run_file, tmp_path):
        config = read_run(run_file)
        (tmp_path / "deep").mkdir()
        write_run(config, tmp_path / "deep" / "run.toml")
        assert read_run(tmp_path / "deep" / "run.toml").data.root == str(tmp_path / "corpus")

    @given(
        train=st.lists(corpora(), min_size=1, max_size=3),
        dev=corpora(),
        test=st.none() | corpora(),
        tokenizer=tokenizers(),
        ratio=st.none() | st.floats(1, exclude_min=True, allow_infinity=False),
        factor=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
        alpha=st.floats(-10, 10),
        steps=st.integers(1, 2**53),
    )
    def test_any_run(self, tmp_path_factory, train, dev, test, tokenizer, ratio, factor, alpha, steps):
        config = RunConfig(
            data=DataConfig(
                root="/somewhere",
                train=tuple(train),
                dev=dev.model_copy(update={"weight": 1.0}),
                test=None if test is None else test.model_copy(update={"weight": 1.0}),
                max_length_ratio=ratio,
                duplicates="drop",
                dev_overlap="drop",
                invalid_utf8="drop",
            ),
            tokenizer=tokenizer,
            model=preset("tiny"),
            train=TrainConfig(max_steps=steps, learning_rate_factor=factor),
            generation=GenerationConfig(length_penalty=alpha),
        )
        path = tmp_path_factory.getbasetemp() / "any-run.toml"
        write_run(config, path)
        assert read_run(path) == config


def written(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text('[data]\ntrain = { pairs = "a.tsv" }\ndev = { pairs = "b.tsv" }\n' + text, encoding="utf-8")
    return path


def test_a_preset_brings_what_it_changes_of_the_other_sections(tmp_path):
    config = read_run(written(tmp_path, '[model]\npreset = "t2t-base-v3"\n[train]\nwarmup_steps = 97\n'))
    assert (config.train.learning_rate_factor, config.train.adam_beta2) == (2.0, 0.997)
    assert config.train.warmup_steps == 97  # what the file says stands


def test_a_preset_of_two_vocabularies_brings_them(tmp_path):
    config = read_run(written(tmp_path, ""), ["model.preset=base-enfr"])
    assert [(side.kind, side.vocab_size) for side in config.tokenizer.sides] == [("wordpiece", 32_000)] * 2


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_every_preset_makes_a_run(tmp_path, name):
    config = read_run(written(tmp_path, f'[model]\npreset = "{name}"\n'))
    assert config.model == PRESETS[name]


def test_training_pairs_beyond_the_learned_positions_are_refused(tmp_path):
    path = written(tmp_path, '[model]\npositions = "learned"\nmax_positions = 100\n')
    with pytest.raises(BadInputError, match=r"data.max_length = 256 .* model.max_positions = 100, or lower .* to 100"):
        read_run(path)
    assert read_run(path, ["data.max_length=100"]).model.longest == 100


def test_a_folder_whose_name_is_a_number_is_no_number(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[data]\ntrain = { pairs = "a.tsv" }\ndev = { pairs = "b.tsv" }\n')
    for name in ("1.10", "1_000", "true", "007"):
        assert Path(read_run(path, [f"data.root={name}"]).data.root).name == name
    assert Path(read_run(path, ['data.root="1.10"']).data.root).name == "1.10"


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ('{ source = "a", target = "b", count = 50 }', "count is for a generated task: name one with made_up"),
        ('{ pairs = "a.tsv", seed = 3 }', "seed is for a generated task"),
        ('{ source = "a", target = "b", source_field = "en" }', "source_field is for files of records"),
    ],
)
def test_what_nothing_of_a_corpus_reads_is_refused(tmp_path, corpus, message):
    path = tmp_path / "run.toml"
    path.write_text(f'[data]\ntrain = {corpus}\ndev = {{ pairs = "b.tsv" }}\n')
    with pytest.raises(BadInputError, match=message):
        read_run(path)
