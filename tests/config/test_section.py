"""What stands on every setting, and what follows from it."""

import json
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, ValidationError

from transduce.config import (
    BadInputError,
    Corpus,
    DataConfig,
    GenerationConfig,
    RunConfig,
    TokenizerConfig,
    TrainConfig,
    TransformerConfig,
    read_run,
    write_run,
)
from transduce.config.architectures import SECTIONS
from transduce.config.keys import current_key
from transduce.config.model import VOCABULARY_SIZES
from transduce.config.section import REFUSED, Section, Setting, facts, former_names, regularization
from transduce.config.values import find_section, find_setting

DATA = """[data]
train = { source = "train.en", target = "train.de" }
dev = { source = "dev.en", target = "dev.de" }

[model]
d_model = 32
"""


class _Toy(Section):
    """A section for these tests; the last field has no facts."""

    kind: Annotated[str, REFUSED] = "plain"
    width: Annotated[int, Setting("refused", read_with=("kind", ("wide", "broad")))] = 7
    height: Annotated[int, Setting("safe", formerly=("tallness", "stature"))] = Field(11, ge=2)
    forgotten: int = 3


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(DATA, encoding="utf-8")
    return path


def _settings(section: type[BaseModel], *location: str) -> list[tuple[str, ...]]:
    """The location of every setting of a section, those of inner sections included."""
    found: list[tuple[str, ...]] = []
    for name, field in section.model_fields.items():
        inner = find_section(field.annotation)
        found += [(*location, name)] if inner is None else _settings(inner, *location, name)
    return found


def _without_facts(section: type[BaseModel]) -> list[str]:
    return [".".join(location) for location in _settings(section) if find_setting(section, location) is None]


def test_every_setting_says_what_resume_makes_of_it():
    assert len(_settings(RunConfig)) > 100
    assert [name for section in (RunConfig, *SECTIONS.values()) for name in _without_facts(section)] == []
    assert _without_facts(_Toy) == ["forgotten"]


def test_every_setting_and_section_of_data_is_described():
    undescribed = []
    for section in (DataConfig, Corpus, TokenizerConfig, *SECTIONS.values(), TrainConfig, GenerationConfig):
        undescribed += [
            f"{section.__name__}.{name}" for name, each in section.model_fields.items() if not each.description
        ]
    assert undescribed == []


def test_the_settings_that_the_others_are_read_with_are_there():
    for section in (*SECTIONS.values(), GenerationConfig, _Toy):
        for field in section.model_fields.values():
            setting = facts(field)
            if setting is not None and setting.read_with is not None:
                assert setting.read_with[0] in section.model_fields


def test_the_facts_of_a_section_count_for_all_that_is_in_it():
    effects = {"data.test.source": "safe", "data.dev.source": "refused", "generation.seed": "safe"}
    for key, effect in effects.items():
        setting = find_setting(RunConfig, key.split("."))
        assert setting is not None
        assert setting.resume == effect
    assert find_setting(RunConfig, ["model", "no_such"]) is None


def test_regularization_is_what_may_change_of_a_model():
    rates = ["dropout", "embedding_dropout", "attention_dropout", "activation_dropout", "label_smoothing"]
    balance = ["importance_loss", "load_loss", "expert_balance"]
    assert sorted(regularization(TransformerConfig)) == sorted(rates + balance)
    assert not regularization(TransformerConfig) & VOCABULARY_SIZES


def test_what_another_setting_makes_idle_is_refused_in_any_section():
    assert _Toy(kind="broad", width=5).width == 5
    with pytest.raises(ValidationError, match=r"width = 5 is for kind = 'wide' or 'broad': leave it out, change kind"):
        _Toy(width=5)
    with pytest.raises(ValidationError, match=r"diversity = 0\.5 is for sampling = false"):
        GenerationConfig(sampling=True, diversity=0.5)
    with pytest.raises(ValidationError, match="sampling = true: leave it out, or change sampling, which is"):
        GenerationConfig(top_k=5)


class TestFormerNames:
    def test_each_is_read(self):
        for name in ("height", "tallness", "stature"):
            assert _Toy.model_validate({name: 5}).height == 5
        assert former_names(_Toy) == {"tallness": "height", "stature": "height"}

    def test_two_names_at_once_are_refused(self):
        with pytest.raises(ValidationError, match="tallness is the former name of height: leave it out"):
            _Toy.model_validate({"height": 5, "tallness": 5})

    def test_the_neighbourhood_is_the_attention_window(self):
        assert TransformerConfig.model_validate({"neighbourhood": 5}).attention_window == 5
        written = json.loads(TransformerConfig(attention_window=5).model_dump_json())
        assert written["attention_window"] == 5
        assert "neighbourhood" not in written
        assert current_key("model.neighbourhood") == "model.attention_window"
        assert current_key("data.train.0.weight") == "data.train.0.weight"

    def test_run_files_and_settings_may_have_it(self, run_file, tmp_path):
        run_file.write_text(DATA.replace("[model]", "[model]\nneighbourhood = 6"), encoding="utf-8")
        config = read_run(run_file)
        assert config.model.attention_window == 6
        assert read_run(run_file, ["model.neighbourhood=4"]).model.attention_window == 4
        assert read_run(run_file, ["model.attention_window=4"]).model.attention_window == 4
        write_run(config, tmp_path / "again.toml")
        assert "attention_window = 6" in (tmp_path / "again.toml").read_text(encoding="utf-8")

    def test_an_error_has_the_line_and_the_present_name(self, run_file):
        run_file.write_text(DATA.replace("[model]", "[model]\nneighbourhood = 0"), encoding="utf-8")
        line = DATA.splitlines().index("[model]") + 2
        with pytest.raises(BadInputError, match=rf"line {line}: model\.attention_window = 0: must be at least 1"):
            read_run(run_file)
        both = "[model]\nneighbourhood = 2\nattention_window = 2"
        run_file.write_text(DATA.replace("[model]", both), encoding="utf-8")
        with pytest.raises(BadInputError, match="neighbourhood is the former name of attention_window: leave it out"):
            read_run(run_file)
