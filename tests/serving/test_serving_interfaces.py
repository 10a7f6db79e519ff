"""Everything that a server is asked over HTTP, with the clients that people have."""

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice, product

import deepl
import numpy as np
import pytest
from libretranslatepy import LibreTranslateAPI

from tests.serving.running_server import Form, serving
from transduce.config import TransduceError
from transduce.inference import Cancellation, load
from transduce.serving.answers import _terms

pytest_plugins = ["tiny_run"]

TEXTS = ["bamo dulu kari", "wemo", "fepi luso", ""]
OUTPUTS = ["ti sor mup", "yob", "nal hax", ""]


@pytest.fixture(scope="module")
def server(trained_run):
    with serving(f"en-de={trained_run}", f"de-en={trained_run}", "--lazy", "--precision", "float32") as running:
        yield running


@pytest.fixture(scope="module")
def offline(trained_run):
    return load(trained_run, "float32")


def translate(server, **fields):
    return server.call("/translate", {"source": "en", "target": "de", **fields})


def test_a_text_and_a_list_of_texts_are_translated(server):
    assert translate(server, q="bamo dulu kari").json == {"translatedText": "ti sor mup"}
    assert translate(server, q=TEXTS).json == {"translatedText": OUTPUTS}
    assert translate(server, q=[]).json == {"translatedText": []}


def test_a_form_is_as_good_as_json(server):
    form = Form({"q": "bamo dulu kari", "source": "en", "target": "de", "alternatives": ""})
    assert server.call("/translate", form).json == {"translatedText": "ti sor mup"}
    several = Form({"q": TEXTS[:2], "source": "en", "target": "de"})
    assert server.call("/translate", several).json == {"translatedText": OUTPUTS[:2]}


def test_the_language_is_told_where_it_is_auto(server):
    answer = translate(server, q="The dog is in the house", source="auto").json
    assert answer["detectedLanguage"]["language"] == "en"
    assert 50 < answer["detectedLanguage"]["confidence"] <= 100
    both = translate(server, q=["wemo", "kari"], source="auto").json
    assert [each["language"] for each in both["detectedLanguage"]] == ["en", "en"]


def test_alternatives_are_the_next_best_outputs(server, offline):
    best, *others = offline_outputs(offline, "bamo dulu", 3)
    answer = translate(server, q="bamo dulu", alternatives=2).json
    assert (answer["translatedText"], answer["alternatives"]) == (best, others)
    assert translate(server, q=["bamo dulu"], alternatives=2).json["alternatives"] == [others]


def offline_outputs(offline, text, number):
    output = offline.translate(text, n_best=number)
    return [output.text, *(each.text for each in output.alternatives)]


def test_sentences_of_a_text_are_translated_one_by_one(server):
    assert translate(server, q=" bamo dulu\n\nwemo \n").json == {"translatedText": " ti sor\n\nyob \n"}


def test_languages_and_detection(server):
    assert server.call("/languages").json == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]
    (found,) = server.call("/detect", {"q": "Guten Tag, wie geht es Ihnen heute?"}).json
    assert found["language"] == "de"
    assert found["confidence"] > 80


def test_what_a_page_has_to_know(server):
    settings = server.call("/frontend/settings").json
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert settings["charLimit"] == 100_000
    assert settings["keyRequired"] is False
    assert server.call("/health").json == {"status": "ok"}


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({}, 400, "missing q"),
        ({"q": "wemo", "target": None}, 400, "target"),
        ({"q": 5}, 400, "q"),
        ({"q": [1] * 20_001}, 400, "q"),
        ({"q": "wemo", "source": "xx"}, 400, "xx to de is not supported; these are: en-de, de-en"),
        ({"q": "wemo", "format": "pdf"}, 400, "format"),
        ({"q": "wemo", "alternatives": -1}, 400, "alternatives"),
        ({"q": "wemo", "alternatives": 11}, 400, "at most 10"),
        ({"q": "half \ud83d"}, 400, "lone surrogate"),
        ({"q": "wemo", "source": "\ud83d"}, 400, "? to de is not supported"),
        ({"q": "bamo " * 3000}, 400, "symbols"),
        ({"q": "x" * 100_001}, 413, "at most 100,000"),
        ({"q": ["x"] * 1001}, 413, "at most 1,000"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(server, fields, status, error):
    answer = translate(server, **fields)
    assert answer.status == status
    assert error in answer.json["error"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", "application/json"),
        (b"[1]", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"no form", "multipart/form-data; boundary=x"),
        (b"no boundary", "multipart/form-data"),
        (b"", "application/json"),
        (b"q=%ff%fe&source=en", "application/x-www-form-urlencoded"),
    ],
)
def test_a_broken_body_is_refused(server, body, kind):
    answer = server.call("/translate", body, "POST", content_type=kind)
    assert answer.status == 400
    assert answer.json["error"]


def test_a_body_over_the_limit_is_refused_before_it_is_read(server):
    answer = server.call("/translate", b"q=" + b"x" * 10_000_001, "POST", content_type="text/plain")
    assert answer.status == 413


def test_addresses_that_are_not_there(server):
    assert (server.call("/nothing").status, server.call("/translate").status) == (404, 405)
    assert "error" in server.call("/nothing").json
    assert "message" in server.call("/v2/nothing").json


def test_every_answer_has_the_headers_that_keep_browsers_safe(server):
    for path in ("/health", "/nothing", "/"):
        headers = server.call(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


@pytest.mark.parametrize("method", ["translate", "detect", "languages"])
def test_libretranslates_own_client_works_unchanged(server, method):
    client = LibreTranslateAPI(server.address)
    match method:
        case "translate":
            assert client.translate("bamo dulu kari", "en", "de") == "ti sor mup"
        case "detect":
            assert client.detect("Where is the house?")[0]["language"] == "en"
        case "languages":
            assert [each["code"] for each in client.languages()] == ["en", "de"]


def test_deepls_own_client_works_unchanged(server):
    client = deepl.DeepLClient("a key", server_url=server.address.rstrip("/"))
    result = client.translate_text("bamo dulu kari", source_lang="EN", target_lang="DE")
    assert (result.text, result.detected_source_lang, result.billed_characters) == ("ti sor mup", "EN", 14)
    several = client.translate_text(TEXTS[:3], source_lang="EN", target_lang="DE")
    assert [each.text for each in several] == OUTPUTS[:3]
    assert client.translate_text("The house", target_lang="DE").detected_source_lang == "EN"
    assert client.translate_text("wemo", source_lang="DE", target_lang="EN-US").text == "yob"
    assert [each.code for each in client.get_source_languages()] == ["EN", "DE"]
    assert {each.name for each in client.get_target_languages()} == {"German", "English"}
    usage = client.get_usage()
    assert usage.character.valid
    assert usage.character.count >= sum(map(len, TEXTS))
    mixed = client.translate_text(["The house is green", "Das Haus ist grün", "A house"], target_lang="EN-US")
    assert [each.detected_source_lang for each in mixed] == ["DE"] * 3  # what can be translated into it
    with pytest.raises(deepl.DeepLException, match="not supported"):
        client.translate_text("wemo", source_lang="FR", target_lang="DE")
    with pytest.raises(deepl.DeepLException, match="formality"):
        client.translate_text("wemo", source_lang="EN", target_lang="DE", formality="more")


def test_clients_have_their_lines_translated_one_by_one(server):
    """As the services do that they were written for; our own interface takes lines for those of one text."""
    lines, apart = "bamo dulu\nwemo", "ti sor\nyob"
    ours = {"text": lines, "source": "en", "target": "de"}
    client = deepl.DeepLClient("a key", server_url=server.address.rstrip("/"))
    ask = partial(client.translate_text, lines, source_lang="EN", target_lang="DE")
    together = server.call("/v1/translate", ours).json["translations"][0]["text"]
    assert together != apart
    assert LibreTranslateAPI(server.address).translate(lines, "en", "de") == apart
    assert (ask().text, ask(split_sentences="nonewlines").text) == (apart, together)


def test_the_own_interface_tells_all_that_a_translator_does(server, offline):
    details = ["score", "log_probability", "tokens", "alignment", "attention", "at_limit"]
    body = {"text": "bamo dulu kari", "source": "en", "target": "de", "details": details, "split_sentences": False}
    answer = server.call("/v1/translate", {**body, "n_best": 2, "beam_size": 3}).json
    (output,) = answer["translations"]
    expected = offline.translate("bamo dulu kari", beam_size=3, n_best=2, return_alignment=True, return_attention=True)
    assert answer["model"] == "en-de"
    assert (output["text"], output["score"], output["log_probability"]) == (
        expected.text,
        expected.score,
        expected.log_probability,
    )
    assert output["tokens"] == list(expected.tokens)
    assert output["alignment"] == [list(each) for each in expected.alignment]
    assert np.array_equal(np.array(output["attention"], np.float32), expected.attention)
    assert output["alternatives"][0]["text"] == expected.alternatives[0].text


def test_a_glossary_says_how_terms_are_written(server):
    body = {"text": "bamo dulu\n\nwemo", "source": "en", "target": "de"}
    assert server.call("/v1/translate", body).json["translations"][0]["text"] == "ti sor\n\nyob"
    forced = server.call("/v1/translate", {**body, "glossary": {"Dulu": "hax", "luso": "ved", "em": "mup"}}).json
    text = forced["translations"][0]["text"]
    assert "hax" in text.split("\n\n")[0]
    assert text.endswith("\n\nyob")


def test_of_terms_that_overlap_the_longest_counts():
    glossary = {"house": "Haus", "beach house": "Strandhaus", "Beach": "Ufer", "beach": "Strand", "dog": "Hund"}
    sentences = [
        "A beach house.",
        "A beach, a house.",
        "The Beach House",
        "Beach",
        "BEACH",
        "a doghouse",
        "house house",
    ]
    assert _terms(sentences, glossary, Cancellation()) == [
        *(["Strandhaus"], ["Haus", "Strand"], ["Strandhaus"], ["Ufer"], ["Ufer"], [], ["Haus"]),
    ]


def test_terms_that_differ_in_case_are_searched_for_once():
    word = "abcdefghij"
    spelled = ["".join(each) for each in islice(product(*((letter, letter.upper()) for letter in word)), 1000)]
    glossary = {each: each for each in reversed(spelled)}
    begin = time.process_time()
    assert _terms([f"{word} " * 9000, f"{spelled[3]} {word.upper()}"], glossary, Cancellation()) == [
        [word],
        [spelled[-1], spelled[3]],
    ]
    assert time.process_time() - begin < 5
    withdrawn = Cancellation()
    withdrawn.cancel()
    with pytest.raises(TransduceError, match="cancelled"):
        _terms([word], glossary, withdrawn)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"n_best": 5}, "n-best 5"),
        ({"details": ["attention"], "split_sentences": False, "n_best": 11, "beam_size": 11}, "at most 10"),
        ({"details": ["attention"], "split_sentences": False, "min_length": 301}, "min_length 301"),
        ({"split_sentences": False, "must_contain": [["ti"] * 101]}, "at most 100"),
        ({"split_sentences": False, "text": ["a", "b"], "must_contain": [[]], "glossary": {"a": "b"}}, "1 lists"),
        ({"details": ["score"] * 11}, "details"),
        ({"glossary": {str(number): "x" for number in range(1001)}}, "glossary"),
        ({"beam_size": 0}, "beam_size"),
        ({"beam_size": 1000}, "beam_size"),
        ({"n_best": 12, "beam_size": 20}, "n_best 12: at most 11 outputs are given"),
        ({"details": ["secrets"]}, "details"),
        ({"details": ["alignment"]}, "alignment"),
        ({"prefixes": ["ti", "sor"], "split_sentences": False}, "prefix"),
        ({"sampling": True, "beam_size": 2}, "sampling"),
        ({"glossary": ["wemo"]}, "glossary"),
        ({"glossary": {" ": "ti"}}, "glossary"),
        ({"glossary": {"wemo": " "}, "text": "bamo. wemo."}, "glossary.wemo: "),
        ({"details": ["attention"], "split_sentences": False, "text": "bamo " * 400}, "at most 300"),
        ({"details": ["attention"], "split_sentences": False, "text": ["bamo"] * 11}, "at most 10"),
        ({"beam_szie": 2}, "beam_szie: there is no such field: did you mean beam_size?"),
        ({"q": "wemo"}, "q: there is no such field: there are api_key, beam_size, "),
        ({"x" * 100_000: 1}, f"{'x' * 50}: there is no such field: "),
    ],
)
def test_wrong_settings_are_named(server, fields, error):
    answer = server.call("/v1/translate", {"text": "wemo", "source": "en", "target": "de", **fields})
    assert answer.status == 400
    assert error in answer.json["error"]


def test_other_servers_clients_may_send_more(server):
    assert server.call("/translate", {"q": "wemo", "source": "en", "target": "de", "beam_szie": 2}).status == 200
    assert server.call("/v2/translate", {"text": ["wemo"], "target_lang": "DE", "beam_szie": 2}).status == 200


def test_what_stands_beside_a_text_is_limited_too(server):
    body = {"text": "wemo", "source": "en", "target": "de"}
    for fields, error in (
        ({"must_not_contain": ["x" * 100_001]}, "100,001 characters of phrases"),
        ({"must_not_contain": ["x"] * 10_001}, "at most 10,000"),
        ({"glossary": {"x" * 100_001: "y"}}, "100,002 characters"),
    ):
        answer = server.call("/v1/translate", {**body, **fields})
        assert (answer.status, error in answer.json["error"]) == (413, True)
    answer = server.call("/translate", b"[" + b"[]," * 500_000 + b"[]]", "POST", content_type="application/json")
    assert (answer.status, "as JSON" in answer.json["error"]) == (413, True)
    answer = server.call("/v2/translate", {"text": ["Das Haus"] * 1001, "target_lang": "EN"})
    assert (answer.status, "at most 1,000" in answer.json["message"]) == (413, True)


def test_too_many_weights_for_one_answer_are_refused(server):
    body = {"source": "en", "target": "de", "details": ["attention"], "split_sentences": False}
    long = {"text": ["bamo " * 290] * 10, "min_length": 290, "max_length": 300}
    answer = server.call("/v1/translate", {**body, **long})
    assert (answer.status, "/v1/attention" in answer.json["error"]) == (400, True)


def test_only_pages_of_its_own_have_it_work(server):
    form = Form({"q": "wemo", "source": "en", "target": "de"})
    host = server.address.split("/")[2]
    for headers, status in (
        ({"origin": f"http://{host}"}, 200),
        ({"origin": "https://behind.example", "sec_fetch_site": "same-origin"}, 200),  # another server has its TLS
        ({"origin": "https://other.example"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "null", "sec_fetch_site": "cross-site"}, 403),
        ({"origin": f"http://{host}", "sec_fetch_site": "same-site"}, 403),
    ):
        assert server.call("/translate", form, **headers).status == status


def test_files_wait_at_an_address_that_goes_through_tls(server):
    boundary = (
        b'--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nen\r\n'
        b'--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nde\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nwemo\r\n--x--\r\n'
    )
    kind = {"content_type": "multipart/form-data; boundary=x"}
    urls = [
        server.call("/translate_file", boundary, "POST", **kind, **headers).json["translatedFileUrl"]
        for headers in ({}, {"x_forwarded_proto": "https"})
    ]
    assert [url.partition(":")[0] for url in urls] == ["http", "https"]
    # However many are left to lie, the next one is translated: the oldest goes.
    for _ in range(101):
        urls.append(server.call("/translate_file", boundary, "POST", **kind).json["translatedFileUrl"])
    paths = ["/" + url.split("/", 3)[3] for url in (urls[0], urls[-1])]
    assert [server.call(path).status for path in paths] == [404, 200]


def test_languages_and_usage_are_told_by_post_too(server):
    assert [each["language"] for each in server.call("/v2/languages", Form({"type": "target"})).json] == ["DE", "EN"]
    assert server.call("/v2/usage", b"", "POST").json["character_limit"] > 0


def events(answer):
    """The names and data of server-sent events."""
    found = [block.split("\n") for block in answer.body.decode().split("\n\n") if block]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in found]


def test_a_long_text_comes_sentence_by_sentence(server):
    text = "bamo dulu\n\nwemo \n\n fepi"
    answer = server.call("/v1/translate/stream", {"text": text, "source": "en", "target": "de"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *sentences, last = events(answer)
    assert [name for name, _ in sentences] == ["sentence"] * 3
    assert last == ("done", {})
    assert "".join(each["text"] + each["separator"] for _, each in sentences) == "ti sor\n\nyob \n\n nal"
    assert "".join(each["source"] + each["separator"] for _, each in sentences) == text
    assert server.call("/v1/translate/stream", {"text": "x", "source": "fr", "target": "de"}).status == 400
    too_long = {"text": "wemo\n\n" + "bamo " * 3000, "source": "en", "target": "de"}
    assert [name for name, _ in events(server.call("/v1/translate/stream", too_long))] == ["sentence", "error"]


def test_samples_of_a_stream_are_those_of_the_text(server):
    asked = {"text": "\n\n".join(["bamo dulu"] * 5), "source": "en", "target": "de", "sampling": True, "temperature": 3}
    (expected,) = server.call("/v1/translate", asked).json["translations"]
    assert len(set(expected["text"].split("\n\n"))) > 1
    *sentences, _ = events(server.call("/v1/translate/stream", asked))
    assert "".join(each["text"] + each["separator"] for _, each in sentences) == expected["text"]


def test_attention_is_that_of_the_translator(server, offline):
    body = {"text": "bamo dulu kari", "source": "en", "target": "de"}
    (sentence,) = server.call("/v1/attention", body).json["sentences"]
    maps = offline.attend("bamo dulu kari")
    assert sentence["source"] == list(maps.source)
    assert sentence["text"] == "ti sor mup"
    packed = sentence["weights"]["cross"]
    weights = np.frombuffer(base64.b64decode(packed["float32"]), "<f4").reshape(packed["shape"])
    assert np.array_equal(weights, maps.cross)
    (forced,) = server.call("/v1/attention", {**body, "output": "mup"}).json["sentences"]
    assert forced["target"] == list(offline.attend("bamo dulu kari", "mup").target)


def test_heads_can_be_muted(server):
    body = {"text": "bamo dulu kari", "source": "en", "target": "de"}
    both = {**body, "mute": ["cross/0/0", "cross/0/1"]}
    (sentence,) = server.call("/v1/attention", both).json["sentences"]
    assert sentence["text"] != "ti sor mup"  # a decoder that sees no source
    assert translate(server, q="bamo dulu kari").json == {"translatedText": "ti sor mup"}
    answer = server.call("/v1/attention", {**body, "mute": ["cross/5/0"]})
    assert (answer.status, "no such attention head" in answer.json["error"]) == (400, True)
    assert server.call("/v1/attention", {**body, "mute": ["all"]}).status == 400


def test_requests_without_different_heads_get_each_their_own(server):
    body = {"text": "bamo dulu kari", "source": "en", "target": "de"}
    ways = [[], ["cross/0/0"], ["cross/0/1"], ["cross/0/0", "cross/0/1"]]

    def ask(mute):
        return server.call("/v1/attention", {**body, "mute": mute}).json["sentences"][0]

    alone = [ask(mute) for mute in ways]
    assert alone[3]["text"] != alone[0]["text"]
    with ThreadPoolExecutor(8) as users:
        assert list(users.map(ask, ways * 4)) == alone * 4


@pytest.mark.parametrize(
    ("path", "fields", "error"),
    [
        ("/v1/attention", {"text": "bamo " * 400}, "at most 300"),
        ("/v1/attention", {"text": "bamo", "output": "ti " * 400}, "at most 300"),
        ("/v1/search", {"text": "bamo " * 400}, "at most 300"),
        ("/v1/search", {"text": "bamo", "max_length": 301}, "max_length 301"),
    ],
)
def test_what_is_too_large_to_be_looked_at_is_refused(server, path, fields, error):
    answer = server.call(path, {"source": "en", "target": "de", **fields})
    assert (answer.status, error in answer.json["error"]) == (400, True)


def test_models_say_what_they_are(server):
    translate(server, q="wemo")
    first, second = server.call("/v1/models").json
    assert (first["name"], first["source"], first["loaded"]) == ("en-de", {"code": "en", "name": "English"}, True)
    assert second["name"] == "de-en"
    assert "float32 on cpu" in server.call("/v1/models/en-de").json["summary"]
    assert server.call("/v1/models/fr-de").status == 404


def test_figures_for_prometheus_have_no_text_in_them(server):
    def figures():
        lines = server.call("/metrics").body.decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    before = figures()
    translate(server, q=["wemo", "kari dulu"])
    after = figures()
    grown = {name: float(after[name]) - float(before.get(name, 0)) for name in after if "total" in name}
    assert grown['transduce_texts_total{model="en-de"}'] == 2
    assert grown['transduce_characters_total{model="en-de",side="source"}'] == 13
    assert grown['transduce_requests_total{path="/translate",status="200"}'] == 1
    server.call("/wemo/kari")
    assert not any("wemo" in name for name in figures())


def test_the_description_names_every_address(server):
    paths = server.call("/openapi.json").json["paths"]
    assert {"/translate", "/v2/translate", "/v1/translate", "/v1/attention", "/metrics"} <= set(paths)
    body = paths["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["q", "source", "target"]


def upload(server, name, content, **fields):
    """A file as browsers send it."""
    mark = "boundary-of-a-form"
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()
    ]
    head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = "".join(parts).encode() + head.encode() + content + f"\r\n--{mark}--\r\n".encode()
    return server.call("/translate_file", body, "POST", content_type=f"multipart/form-data; boundary={mark}")


def test_a_text_file_is_translated(server):
    answer = upload(server, "words.txt", b"bamo dulu\n\nwemo\n", source="en", target="de")
    address = answer.json["translatedFileUrl"]
    assert address.endswith("words_de.txt")
    file = server.call(address.removeprefix(server.address.rstrip("/")))
    assert file.body == b"ti sor\n\nyob\n"
    assert file.headers["content-type"] == "application/octet-stream"
    assert server.call("/download_file/words_de.txt").status == 404
    odd = upload(server, "größe & #1?.txt", b"wemo", source="en", target="de").json["translatedFileUrl"]
    assert server.call(odd.removeprefix(server.address.rstrip("/"))).body == b"yob"


def test_tags_stay_around_what_they_stood_around(server):
    page = '<p class="x">bamo <b title="a&amp;b">dulu</b> kari</p><code>wemo</code> <i translate="no">wemo</i>'
    expected = '<p class="x">ti <b title="a&amp;b">sor</b> mup</p><code>wemo</code> <i translate="no">wemo</i>'
    assert translate(server, q=page, format="html").json == {"translatedText": expected}
    client = deepl.DeepLClient("a key", server_url=server.address.rstrip("/"))
    result = client.translate_text(page, source_lang="EN", target_lang="DE", tag_handling="html")
    assert result.text == expected
    several = translate(server, q=["<p>wemo", "a < b", "<b>kari</b>"], format="html", alternatives=1).json
    assert several["translatedText"][2] == "<b>mup</b>"
    assert [len(each) for each in several["alternatives"]] == [1, 1, 1]
    answer = server.call(
        "/v1/translate", {"text": page, "source": "en", "target": "de", "format": "html", "details": ["score"]}
    )
    assert (answer.status, "no score" in answer.json["error"]) == (400, True)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("page.html", "<h1>wemo</h1>\n<p>bamo <em>dulu</em></p>\n", "<h1>yob</h1>\n<p>ti <em>sor</em></p>\n"),
        (
            "film.srt",
            "1\n00:00:01,000 --> 00:00:02,500\nbamo dulu\n\n2\n00:00:03,000 --> 00:00:04,000\n<i>wemo</i>\n",
            "1\n00:00:01,000 --> 00:00:02,500\nti sor\n\n2\n00:00:03,000 --> 00:00:04,000\n<i>yob</i>\n",
        ),
    ],
)
def test_pages_and_subtitles_are_translated(server, name, content, expected):
    address = upload(server, name, content.encode(), source="en", target="de").json["translatedFileUrl"]
    assert server.call(address.removeprefix(server.address.rstrip("/"))).body.decode() == expected


@pytest.mark.parametrize(("name", "content"), [("words.pdf", b"x"), ("words.txt", b"\xff\xfe\xfd"), ("words", b"x")])
def test_files_that_cannot_be_translated_are_refused(server, name, content):
    answer = upload(server, name, content, source="en", target="de")
    assert answer.status == 400
    assert answer.json["error"]
