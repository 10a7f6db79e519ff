"""What a server does when there is too much to do, something dies, clients leave, or it is told to stop."""

import asyncio
import json
import os
import random
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.serving.running_server import create_copy, serving
from tests.tiny_run import DICTIONARY
from transduce.cli import main
from transduce.inference import load

pytest_plugins = ["tiny_run"]

ASKED = {"source": "en", "target": "de"}
# Under way for seconds: an output of 2,000 tokens, one after the other.
SLOW = {**ASKED, "text": "bamo", "min_length": 2000, "max_length": 2001}
# What nobody waits for to the end: fast processors write 2,000 tokens in a fifth of a second.
LONGEST = {**SLOW, "min_length": 4095, "max_length": 4096}

# A server of few requests, and one of short ones, each for several tests: the last of them ends it.
FEW = ("--max-waiting", 2, "--cors", "https://mine.example")
SHORT = ("--timeout", 0.1)


def sentences(number, seed=1):
    chance = random.Random(seed)
    return [" ".join(chance.choices(list(DICTIONARY), k=chance.randint(1, 5))) for _ in range(number)]


def send(server, path, fields):
    """A request whose answer is not waited for."""
    place = urlsplit(server.address)
    body = json.dumps(fields).encode()
    connection = socket.create_connection((place.hostname, place.port))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def figure(server, name, model="en-de"):
    """A gauge of a model."""
    lines = server.call("/metrics").body.decode().splitlines()
    (found,) = [line for line in lines if line.startswith(f'transduce_{name}{{model="{model}"}}')]
    return float(found.split()[-1])


def under_way(server):
    return figure(server, "requests_under_way")


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def server_with(trained_run):
    """The server of these options: one that runs already, or another, as to start one takes seconds."""
    running = {}
    with ExitStack() as stack:

        def start_or_find(*options):
            if options not in running or not running[options].process.is_alive():
                running[options] = stack.enter_context(serving(f"en-de={trained_run}", *options))
            return running[options]

        yield start_or_find


def test_many_users_get_their_own_answers_bit_for_bit(trained_run, server_with):
    server, texts = server_with(), sentences(100)
    expected = [(each.text, each.score) for each in load(trained_run).translate(texts)]
    body = {**ASKED, "details": ["score"]}
    with ThreadPoolExecutor(16) as users:
        answers = users.map(
            lambda text: server.call("/v1/translate", {**body, "text": text}).json["translations"], texts
        )
        assert [(each["text"], each["score"]) for (each,) in answers] == expected


def test_a_model_that_dies_is_back_and_its_work_is_refused(server_with):
    server = server_with()
    (child,), restarts = server.children(), figure(server, "model_restarts")
    with ThreadPoolExecutor(4) as users:
        waiting = [users.submit(server.call, "/v1/translate", SLOW) for _ in range(4)]
        wait_until(lambda: under_way(server) == 4)
        os.kill(child, signal.SIGKILL)
        answers = [each.result() for each in waiting]
    assert [each.status for each in answers] == [503] * 4
    assert all(int(each.headers["retry-after"]) >= 1 for each in answers)
    wait_until(lambda: server.call("/translate", {**ASKED, "q": "wemo"}).status == 200)
    assert server.children() != [child]
    assert figure(server, "model_restarts") == restarts + 1


def test_work_of_clients_that_left_is_dropped(server_with):
    server = server_with()
    connections = [send(server, f"/v1/translate{stream}", SLOW) for stream in ("", "", "/stream")]
    wait_until(lambda: under_way(server) == 3)
    for each in connections:
        each.close()
    begin = time.monotonic()
    wait_until(lambda: under_way(server) == 0)
    assert server.call("/translate", {**ASKED, "q": "wemo"}).json == {"translatedText": "yob"}
    assert time.monotonic() - begin < 10


def test_too_much_work_is_refused_and_the_rest_is_done(server_with):
    server = server_with(*FEW)
    with ThreadPoolExecutor(2) as users:
        waiting = [users.submit(server.call, "/v1/translate", SLOW) for _ in range(2)]
        wait_until(lambda: under_way(server) == 2)
        refused = server.call("/translate", {**ASKED, "q": "wemo"})
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "come again" in refused.json["error"]
        assert server.call("/health").status == 200
        assert [each.result().status for each in waiting] == [200, 200]


def test_a_request_that_takes_too_long_ends(server_with):
    server = server_with(*SHORT)
    for path in ("/v1/translate", "/v1/translate/stream"):
        answer = server.call(path, LONGEST)
        assert answer.status == 504
        assert "0.1 seconds" in answer.json["error"]
    wait_until(lambda: under_way(server) == 0)


def test_pages_of_others_call_only_where_they_may(server_with):
    server = server_with(*FEW)
    mine, other = (server.call("/health", origin=f"https://{name}.example").headers for name in ("mine", "other"))
    assert mine["access-control-allow-origin"] == "https://mine.example"
    assert "access-control-allow-origin" not in other


def test_a_stop_finishes_what_is_under_way(server_with):
    server = server_with(*FEW)
    with ThreadPoolExecutor(1) as users:
        waiting = users.submit(server.call, "/v1/translate", SLOW)
        wait_until(lambda: under_way(server) == 1)
        children = server.children()
        os.kill(server.process.pid, signal.SIGINT)
        assert waiting.result().status == 200
        server.process.join(30)
        assert (server.process.exitcode, [line for line in server.log if "error" in line]) == (0, [])
        assert len(children) == 1
        for child in children:
            with pytest.raises(ProcessLookupError):
                os.kill(child, 0)


def test_models_end_with_a_server_that_is_killed(server_with):
    server = server_with(*SHORT)
    (child,) = server.children()
    server.process.kill()
    status = Path(f"/proc/{child}/stat")
    # Nobody here may fetch its exit status: a zombie has ended.
    wait_until(lambda: not status.exists() or status.read_text().split()[2] == "Z")


def test_only_who_has_a_key_is_let_in(trained_run, tmp_path, capsys):
    keys = tmp_path / "keys"

    def add(name, *rate):
        assert main._run(["serve", str(trained_run), "--keys", str(keys), "--add-key", name, *rate]) == 0
        return capsys.readouterr().out.strip()

    free, slow = add("anna"), add("berta", "--rate", "2")
    assert free not in keys.read_text()
    with serving(f"en-de={trained_run}", "--keys", keys) as server:
        body = {**ASKED, "q": "wemo"}
        assert server.call("/translate", body).status == 403
        assert server.call("/translate", {**body, "api_key": "wrong"}).status == 403
        assert server.call("/translate", {**body, "api_key": free}).status == 200
        assert server.call("/translate", body, authorization=f"Bearer {free}").status == 200
        deepl = {"text": ["wemo"], "target_lang": "DE", "source_lang": "EN"}
        assert server.call("/v2/translate", deepl, authorization=f"DeepL-Auth-Key {free}").status == 200
        assert "message" in server.call("/v2/translate", deepl).json
        assert server.call("/v1/models/en-de").status == 403
        assert [server.call("/translate", {**body, "api_key": slow}).status for _ in range(3)] == [200, 200, 429]
        assert server.call("/translate", {**body, "api_key": free}).status == 200
        assert server.call("/frontend/settings").json["keyRequired"] is True
        assert server.call("/health").status == 200


def test_models_come_and_go_within_the_memory_they_may_have(trained_run, server_with):
    models = [f"{pair}={trained_run}" for pair in ("en-de", "de-en", "en-fr")]
    memory = figure(server_with(), "model_memory_bytes")
    assert memory > 50e6
    with serving(*models, "--memory", round(2.5 * memory / 2**20)) as server:
        assert server.children() == []
        send(
            server, "/translate", {**ASKED, "q": "wemo"}
        ).close()  # nobody waits for the model any longer: the next one has it
        for loaded, pair in enumerate((("en", "de"), ("de", "en"), ("en", "fr"), ("en", "de")), start=1):
            answer = server.call("/translate", {"q": "wemo", "source": pair[0], "target": pair[1]})
            assert answer.json == {"translatedText": "yob"}
            assert len(server.children()) == min(loaded, 2)


def test_a_model_without_languages_is_served_too(trained_run):
    """And loaded when it is first asked for, if that is asked for; in processes as a user has them."""
    with serving(trained_run, "--lazy", fresh=True) as server:
        assert server.children() == []
        asked = {"source": "source", "target": "target"}
        assert server.call("/translate", {**asked, "q": "bamo dulu\n\nwemo"}).json == {
            "translatedText": "ti sor\n\nyob"
        }
        assert len(server.children()) == 1
        # As many alternatives as there are, where a beam is narrower; asked for to the number, they are refused.
        for beam, others in ((1, 0), (3, 2)):
            body = {**asked, "text": "wemo", "beam_size": beam, "n_best": 3}
            answer = server.call("/v1/translate", body)
            assert answer.status == (200 if others else 400)
        assert len(server.call("/translate", {**asked, "q": "wemo", "alternatives": 10}).json["alternatives"]) == 3


def test_what_cannot_be_served_is_said_before_anything_is(trained_run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_copy)
    empty = tmp_path / "empty"
    empty.mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for arguments, error in (
            ([tmp_path / "nothing"], "there is no such folder"),
            ([f"german={trained_run}"], "'german' is no pair of languages"),
            ([f"deu-en={trained_run}"], "did you mean 'de'"),
            ([f"en-xx={trained_run}"], "there is no such language"),
            ([trained_run, trained_run], "each needs its languages"),
            ([f"en-de={trained_run}", f"en-de={trained_run}"], "there is a model for en-de already"),
            ([f"en-de={empty}"], "empty"),
            ([trained_run, "--keys", tmp_path / "nothing"], "--add-key"),
            ([trained_run, "--add-key", "anna"], "--keys F"),
            ([trained_run, "--max-body", "inf"], "--max-body inf: give a finite number"),
            ([trained_run, "--port", taken.getsockname()[1]], "cannot listen there"),
        ):
            assert main._run(["serve", "--port", "0", *map(str, arguments)]) == 2
            assert error in capsys.readouterr().err


def test_no_text_comes_into_the_log(server_with):
    server = server_with()
    server.call("/translate", {**ASKED, "q": "wemo kari"})
    server.call("/translate", {**ASKED, "q": "wemo " * 3000})
    server.call("/translate?q=wemo", b"{wemo", "POST")
    threading.Event().wait(0.2)
    assert not any("wemo" in line for line in server.log)
