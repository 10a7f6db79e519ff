"""Whatever is sent: no status of 500, no silence, and nothing of the server's inside in an answer."""

import json
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serving.running_server import serving

pytest_plugins = ["tiny_run"]

PATHS = [
    "/translate",
    "/detect",
    "/v2/translate",
    "/v1/translate",
    "/v1/translate/stream",
    "/v1/attention",
    "/v1/search",
]
KINDS = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""]
STATUSES = {200, 400, 413, 429}
WORDS = ["bamo", "wemo", "\x00", "\ud800", "<b>", "%s", "{{", "é" * 50, "", " ", "0", "\n\n", "🙂", "../../x"]
NAMES = [
    "q",
    "source",
    "target",
    "format",
    "alternatives",
    "api_key",
    "text",
    "source_lang",
    "target_lang",
    "tag_handling",
]
NAMES += [
    "details",
    "glossary",
    "beam_size",
    "n_best",
    "max_length",
    "prefixes",
    "must_contain",
    "mute",
    "output",
    "seed",
]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["en", "de", "auto", "html", *WORDS])
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(), inner, max_size=4),
    max_leaves=8,
)
# With the fields of all interfaces, or of this server's own, which takes no others.
needed = st.sampled_from([{"q": "wemo", "text": "wemo"}, {"text": "wemo"}])
objects = st.tuples(needed, st.dictionaries(st.sampled_from(NAMES), values, max_size=8)).map(
    lambda both: json.dumps({"source": "en", "target": "de", **both[0], **both[1]}).encode()
)
bodies = objects | st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode())


@pytest.fixture(scope="module")
def server(trained_run):
    with serving(f"en-de={trained_run}", "--timeout", 20) as running:
        yield running


def check(server, path, body, kind):
    answer = server.call(path, body, "POST", **({"content_type": kind} if kind else {}))
    assert answer.status in STATUSES, (path, body, kind, answer)
    assert b"Traceback" not in answer.body
    assert b".py" not in answer.body
    if answer.status != 200:
        assert set(answer.json) <= {"error", "message"}


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(path=st.sampled_from(PATHS), body=bodies, kind=st.sampled_from(KINDS))
def test_any_body_has_an_answer(server, path, body, kind):
    check(server, path, body, kind)


@pytest.mark.slow
@settings(
    max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(path=st.sampled_from(PATHS), body=bodies, kind=st.sampled_from(KINDS))
def test_any_of_5000_bodies_has_an_answer(server, path, body, kind):
    check(server, path, body, kind)


@pytest.mark.slow
def test_good_requests_with_a_byte_changed(server):
    chance = random.Random(7)
    good = json.dumps({"q": "bamo wemo", "source": "en", "target": "de", "alternatives": 1}).encode()
    for _ in range(500):
        place = chance.randrange(len(good))
        body = good[:place] + bytes([chance.randrange(256)]) + good[place + chance.randrange(2) :]
        check(server, chance.choice(PATHS), body, chance.choice(KINDS))


@pytest.mark.slow
def test_the_description_is_kept(server):
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    schema = schemathesis.openapi.from_url(f"{server.address}openapi.json")
    # What fits the description may be refused for what no description says: half a character, too many alternatives.
    excluded = [schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]
    answered = Counter()
    for operation in schema.get_all_operations():

        @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.ok().as_strategy())
        def try_out(case):
            answer = case.call()
            answered[case.path, answer.status_code] += 1
            case.validate_response(answer, excluded_checks=excluded)

        try_out()
    assert {path for path in PATHS if not answered[path, 200]} == set()
    assert {status for _, status in answered} <= STATUSES | {404}
