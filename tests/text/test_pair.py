import pytest
import tokenizers

from transduce.config import BadInputError
from transduce.config.files import ANEW
from transduce.text import Tokenizer, TokenizerPair, learn_bpe
from transduce.text.tokenizer import SPECIAL_SYMBOLS

SHARED = "tokenizer.json"
SIDES = ["tokenizer.source.json", "tokenizer.target.json"]


@pytest.fixture(scope="module")
def english():
    return learn_bpe(["the cat sat on the mat"] * 3, 281)


@pytest.fixture(scope="module")
def german():
    return learn_bpe(["die Katze sitzt auf der Matte"] * 3, 293)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def complaint(folder):
    with pytest.raises(BadInputError) as caught:
        TokenizerPair.load(folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


class TestShared:
    def test_one_tokenizer_is_both_sides(self, english):
        pair = TokenizerPair.of(english)
        assert pair.shared
        assert pair.source is pair.target is english
        assert pair.special == english.special
        assert pair.sizes() == {"vocab_size": english.vocab_size}

    def test_round_trip(self, english, tmp_path):
        TokenizerPair.of(english).save(tmp_path)
        assert names(tmp_path) == [SHARED]
        loaded = TokenizerPair.load(tmp_path)
        assert loaded.shared
        assert loaded.source.to_json() == english.to_json()


class TestTwo:
    def test_each_side_has_its_own(self, english, german):
        pair = TokenizerPair(english, german)
        assert not pair.shared
        assert english.vocab_size != german.vocab_size
        assert pair.sizes() == {"vocab_size": german.vocab_size, "source_vocab_size": english.vocab_size}

    def test_round_trip(self, english, german, tmp_path):
        TokenizerPair(english, german).save(tmp_path)
        assert names(tmp_path) == SIDES
        loaded = TokenizerPair.load(tmp_path)
        assert not loaded.shared
        assert (loaded.source.to_json(), loaded.target.to_json()) == (english.to_json(), german.to_json())

    def test_two_with_the_same_symbols_share_a_vocabulary_in_two_files(self, english, tmp_path):
        lowercasing = tokenizers.Tokenizer.from_str(english.to_json())
        lowercasing.normalizer = tokenizers.normalizers.Lowercase()
        pair = TokenizerPair(english, Tokenizer(lowercasing))
        pair.save(tmp_path)
        assert names(tmp_path) == SIDES
        loaded = TokenizerPair.load(tmp_path)
        assert loaded.shared
        assert loaded.sizes() == {"vocab_size": english.vocab_size}
        # Each still cuts text in its own way.
        (source,), (target,) = (side.decode(side.encode(["The"])) for side in (loaded.source, loaded.target))
        assert (source, target) == ("The", "the")

    def test_the_source_can_have_embeddings_of_its_own_all_the_same(self, english):
        pair = TokenizerPair.of(english)
        assert pair.sizes(shared=False) == {"vocab_size": 281, "source_vocab_size": 281}

    def test_the_same_symbols_with_other_ids_are_two_vocabularies(self):
        symbols = [*SPECIAL_SYMBOLS, "a", "b"]
        one, other = (
            Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>")))
            for order in (symbols, [*SPECIAL_SYMBOLS, "b", "a"])
            for vocabulary in [{symbol: index for index, symbol in enumerate(order)}]
        )
        assert not TokenizerPair(one, other).shared

    def test_other_numbers_for_the_special_symbols_are_refused(self, english):
        backwards = {symbol: index for index, symbol in enumerate(reversed(SPECIAL_SYMBOLS))}
        other = Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel(backwards, unk_token="<unk>")))
        with pytest.raises(BadInputError, match="special symbols differently"):
            TokenizerPair(english, other)


class TestFiles:
    def test_saving_the_other_kind_leaves_nothing_behind(self, english, german, tmp_path):
        for pair, left in [
            (TokenizerPair.of(english), [SHARED]),
            (TokenizerPair(english, german), SIDES),
            (TokenizerPair.of(german), [SHARED]),
        ]:
            pair.save(tmp_path)
            assert names(tmp_path) == left

    def test_removing_takes_tokenizers_only(self, english, german, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        TokenizerPair.remove(tmp_path)
        TokenizerPair(english, german).save(tmp_path)
        TokenizerPair.remove(tmp_path)
        assert names(tmp_path) == ["config.json"]

    def test_none_is_a_missing_shared_one(self, tmp_path):
        assert complaint(tmp_path) == f"{tmp_path / SHARED}: no such tokenizer file: {ANEW}"

    @pytest.mark.parametrize("lost", SIDES)
    def test_a_lost_side_is_named_even_beside_a_shared_one(self, english, german, tmp_path, lost):
        TokenizerPair(english, german).save(tmp_path)
        _saved(english, tmp_path / SHARED)
        (tmp_path / lost).unlink()
        assert complaint(tmp_path) == f"{tmp_path / lost}: no such tokenizer file: {ANEW}"

    @pytest.mark.parametrize("name", SIDES)
    def test_a_damaged_side_is_named(self, english, german, tmp_path, name):
        TokenizerPair(english, german).save(tmp_path)
        (tmp_path / name).write_text("{}")
        assert complaint(tmp_path).startswith(f"{tmp_path / name}: not a readable tokenizer")


def _saved(tokenizer, path):
    tokenizer.save(path)
    return path
