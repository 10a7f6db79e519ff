"""Settings of the convolutional models: what is refused, and in which words."""

import pytest
from pydantic import ValidationError

from transduce.config import BadInputError, ConvolutionalConfig, read_run, with_vocabularies
from transduce.config.architectures import read_model

DATA = '[data]\ntrain = { source = "a", target = "b" }\ndev = { source = "a", target = "b" }\n'


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_convolutions": 3}, "must be a list of"),
        ({"encoder_convolutions": []}, "must be a list of"),
        ({"encoder_convolutions": [[512, 3]]}, r"must be a list of .* not \[512, 3\]"),
        ({"decoder_convolutions": [[512, 3, True]]}, "must be a list of"),
        ({"decoder_convolutions": [[512, 3, 0]]}, "must be between 1 and"),
        ({"encoder_convolutions": [[1, 1, 999], [1, 1, 2]]}, "1,001 layers in all, where 1,000 are possible"),
        ({"encoder_convolutions": [[512, 4, 1]]}, "a kernel of 4 symbols has no middle: choose an odd width"),
        ({"network": "bytenet", "kernel_width": 2}, "a kernel of 2 symbols has no middle"),
        ({"kernel_width": 5}, "kernel_width = 5 is for network = 'bytenet'"),
        ({"network": "bytenet", "max_positions": 5}, "max_positions = 5 is for network = 'convs2s'"),
        ({"tied_projection": True, "output_width": 7}, "output_width = embedding_width, and they are 7 and 512"),
        ({"shared_embedding": True, "source_vocab_size": 7}, "needs one vocabulary"),
        ({"network": "bytenet", "unfold_factor": 0.5}, "greater than or equal to 1"),
        ({"heads": 3}, "Extra inputs"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        ConvolutionalConfig.model_validate(changes)


def test_every_layer_has_a_tensor():
    convolutions = {"encoder_convolutions": ((7, 3, 2), (5, 1, 1)), "decoder_convolutions": ((7, 3, 5),)}
    assert ConvolutionalConfig(**convolutions).least_tensors == 8
    assert ConvolutionalConfig(network="bytenet", encoder_blocks=3, decoder_blocks=4).least_tensors == 7


def test_a_decoder_may_have_an_even_kernel():
    assert ConvolutionalConfig(decoder_convolutions=((7, 2, 1),)).decoder_convolutions == ((7, 2, 1),)


def test_survives_its_own_json():
    config = ConvolutionalConfig(encoder_convolutions=((7, 3, 2), (5, 1, 1)), dropout=0.3)
    again = read_model(ConvolutionalConfig.model_validate_json(config.model_dump_json()))
    assert again == config
    assert read_model({"architecture": "convolutional", **config.model_dump(mode="json")}) == config


def test_dilations_double_up_to_the_largest():
    assert [ConvolutionalConfig(network="bytenet", largest_dilation=most).dilations for most in (1, 2, 7, 16)] == [
        (1,),
        (1, 2),
        (1, 2, 4),
        (1, 2, 4, 8, 16),
    ]


def test_one_embedding_for_two_vocabularies_is_refused_before_anything_is_read(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        DATA + '[tokenizer.source]\n[tokenizer.target]\n[model]\narchitecture = "convolutional"\n'
        "shared_embedding = true\n"
    )
    with pytest.raises(BadInputError, match=r"shared_embedding = true needs one vocabulary, .* leave it out"):
        read_run(path)


def test_and_where_only_the_tokenizers_tell():
    config = ConvolutionalConfig(shared_embedding=True)
    assert with_vocabularies(config, {"vocab_size": 7}) == config.model_copy(update={"vocab_size": 7})
    with pytest.raises(BadInputError, match=r"^model: shared_embedding = true needs one vocabulary"):
        with_vocabularies(config, {"vocab_size": 7, "source_vocab_size": 9})


def test_in_a_run_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(DATA + '[model]\narchitecture = "convolutional"\nencoder_convolutions = [[64, 3, 2], [96, 5, 1]]\n')
    config = read_run(path).model
    assert isinstance(config, ConvolutionalConfig)
    assert config.encoder_convolutions == ((64, 3, 2), (96, 5, 1))
    assert config.summary == "ConvS2S, 3 + 20 layers, embeddings of 512"
    assert config.longest == 1024
    with pytest.raises(BadInputError, match=r"model.encoder_convolutions = .*: must be a list of \[channels"):
        read_run(path, ["model.encoder_convolutions=[[64, 3]]"])
    config = read_run(path, ["model.network=bytenet", "model.encoder_convolutions=[[512,3,20]]"]).model
    assert (config.summary, config.longest) == ("ByteNet, 30 + 30 blocks, d 800", None)
