import ctypes
import json
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from itertools import islice, product
from threading import Barrier

import pytest
import tokenizers

from transduce.config import BadInputError
from transduce.text import Tokenizer, learn_bpe, learn_tokenizer

TEXTS = ["", "the cat sat", "  12 <s> </s> <pad> <unk> <0x41> €🙂  "]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_bpe(["the cat sat on the mat", "<s> </s> <pad> <unk> <0x41>"] * 5, 311)


@pytest.fixture
def saved(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    return path


def memory_in_use():
    """Bytes that malloc has given and not got back."""
    fields = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    kind = type("Mallinfo", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in fields]})
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = kind
    return mallinfo().uordblks


def complaint(path):
    with pytest.raises(BadInputError) as caught:
        Tokenizer.load(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_the_special_symbols_have_the_same_ids_in_every_vocabulary(tokenizer):
    assert astuple(tokenizer.special) == (0, 1, 2, 3)
    assert tokenizer.tokens([0, 1, 2, 3]) == ["<pad>", "<s>", "</s>", "<unk>"]


def test_special_symbols_vanish_from_text(tokenizer):
    [ids] = tokenizer.encode(["the cat"])
    assert tokenizer.decode([[1, *ids, 2, 0, 0], [0, 1, 2, 3]]) == ["the cat", ""]


def test_one_text_is_no_list_of_texts(tokenizer):
    with pytest.raises(BadInputError, match=r"a list of texts belongs here, and one was given: \[text\]"):
        tokenizer.encode("the cat")
    assert repr(tokenizer) == f"Tokenizer({tokenizer.vocab_size} symbols)"


def test_a_loaded_one_gives_the_same_ids(tokenizer, saved):
    loaded = Tokenizer.load(saved)
    assert loaded.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert loaded.decode(loaded.encode(TEXTS)) == TEXTS
    assert loaded.vocab_size == tokenizer.vocab_size
    assert loaded.to_json() == tokenizer.to_json()


def test_a_loaded_one_takes_no_text_for_a_special_symbol(saved):
    ids = Tokenizer.load(saved).encode(["<s>", "</s>", "<pad>", "<unk>", "the cat</s>"])
    assert all(min(sequence) > 3 for sequence in ids)


def test_the_file_is_the_librarys_own(tokenizer, saved):
    assert tokenizers.Tokenizer.from_file(str(saved)).get_vocab_size() == tokenizer.vocab_size


def test_ids_that_no_symbol_has_are_unknown(tokenizer):
    assert tokenizer.tokens([tokenizer.vocab_size]) == ["<unk>"]


def test_a_missing_file_is_named(tmp_path):
    assert str(tmp_path / "none.json") in complaint(tmp_path / "none.json")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"not JSON"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    assert str(path) in complaint(path)


def test_a_truncated_file_is_named(saved):
    content = saved.read_bytes()
    saved.write_bytes(content[: len(content) * 2 // 3])
    assert str(saved) in complaint(saved)


def test_a_tokenizer_without_the_special_symbols_is_named(saved):
    tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"<pad>": 0, "<s>": 1, "a": 2}, merges=[])).save(str(saved))
    message = complaint(saved)
    assert "lacks the special symbols </s>, <unk>" in message
    assert str(saved) in message


def test_byte_names_are_ordinary_symbols(saved):
    # As special ones they would vanish from decoded text, and with them all that is spelled in bytes.
    added = json.loads(saved.read_text())["added_tokens"]
    assert [token["content"] for token in added] == ["<pad>", "<s>", "</s>", "<unk>"]


def test_the_vocabulary_stands_in_the_order_of_ids(tokenizer):
    vocabulary = tokenizer.vocabulary
    assert list(vocabulary.values()) == list(range(tokenizer.vocab_size))
    assert tokenizer.tokens(list(vocabulary.values())) == list(vocabulary)


def test_pieces_are_what_is_tokenized_on_its_own(tokenizer):
    assert tokenizer.pieces("the cat sat, 12") == [" the", " cat", " sat", ",", " 1", "2"]
    assert tokenizer.pieces("") == []
    characters = learn_tokenizer("characters", ["ab"], 300)
    assert [characters.pieces(text) for text in ("ab c", "")] == [["ab c"], []]


def test_a_file_that_asks_for_cutting_and_padding_gets_neither(tokenizer, tmp_path):
    asking = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    asking.enable_truncation(3)
    asking.enable_padding(length=50)
    asking.save(str(tmp_path / "tokenizer.json"))
    text = "the cat sat on the mat"
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode([text]) == tokenizer.encode([text])
    assert len(tokenizer.encode([text])[0]) > 3


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_file_that_asks_for_bpe_dropout_gets_none(tokenizer, saved, share):
    stored = json.loads(saved.read_text())
    stored["model"]["dropout"] = share
    saved.write_text(json.dumps(stored))
    loaded = Tokenizer.load(saved)
    for _ in range(20):
        assert loaded.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert loaded.to_json() == tokenizer.to_json()  # so that nobody who writes it again hands it on


def test_unigram_is_not_sampled():
    pieces = [*(("<pad>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)), ("a", -1.0), ("b", -1.5), ("ab", -2.0)]
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 3))
    best = backend.encode("ab" * 20).ids
    backend.model.alpha, backend.model.nbest_size = 0.1, 64
    tokenizer = Tokenizer(backend)
    assert tokenizer.encode(["ab" * 20] * 20) == [best] * 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc tells how much is in use")
def test_without_a_cache_many_threads_use_no_memory_from_call_to_call(tmp_path):
    def grown(tokenizer):
        text = " ".join("".join(word) for word in islice(product("catshemon", repeat=6), 5000))
        with ThreadPoolExecutor(16) as pool:
            together = Barrier(16)

            def work(_):
                together.wait()
                before = memory_in_use()
                together.wait()
                tokenizer.encode([text])
                together.wait()
                return memory_in_use() - before

            return max(pool.map(work, range(16)))

    learnt = learn_bpe(["the cat sat on the mat"] * 5, 290)
    learnt.save(tmp_path / "tokenizer.json")
    cached, uncached = (Tokenizer.load(tmp_path / "tokenizer.json") for _ in range(2))
    uncached.cache_nothing()
    ids = cached.encode(TEXTS)
    assert uncached.encode(TEXTS) == uncached.encode(TEXTS) == ids
    assert grown(uncached) < 1e6
    assert grown(cached) > 1e7
