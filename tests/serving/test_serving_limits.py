"""Who is let in, in numbers that a person can check; keys, languages and what models are called."""

import asyncio
import socket
import threading
import time
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn
from starlette.requests import Request

from transduce.config import BadInputError
from transduce.serving import add_key, app, deepl, frames, read_models
from transduce.serving.admission import Admission, RateLimit
from transduce.serving.app import make_app
from transduce.serving.connections import limited_connections
from transduce.serving.http import Doorkeeper
from transduce.serving.keys import find_key, read_keys
from transduce.serving.languages import detect, language_name
from transduce.serving.metrics import Metrics
from transduce.serving.models import Models
from transduce.serving.refusal import Forbidden, TooMany, TooSlow
from transduce.serving.service import Job, Service
from transduce.serving.settings import Limits, ServedModel, ServeSettings
from transduce.text import split_sentences


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@contextmanager
def connected(seconds, most=100):
    """Makes connections to a server that answers with the length of the body, and an event for clients of /endless.

    At /unread it does not look at the body, at /slow it takes 0.3 seconds, and /endless ends when the client is gone.
    """
    gone = threading.Event()

    async def answer(scope, receive, send):
        body = b""
        if scope["path"] == "/endless":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(2):  # the second one waits until the first is read
                await send({"type": "http.response.body", "body": b"x" * 20_000_000, "more_body": True})
            gone.set()
            return
        await asyncio.sleep(0.3 if scope["path"] == "/slow" else 0)
        while scope["path"] != "/unread" and (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        length = str(len(body)).encode()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(length))]}
        )
        await send({"type": "http.response.body", "body": length})

    with socket.socket() as listening, ExitStack() as opened:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        connection = partial(limited_connections(seconds).func, seconds, most)
        server = uvicorn.Server(uvicorn.Config(answer, http=connection, log_config=None, lifespan="off"))
        running = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        running.start()
        try:
            yield (
                lambda: opened.enter_context(closing(socket.create_connection(listening.getsockname(), timeout=30))),
                gone,
            )
        finally:
            server.should_exit = True
            running.join()


def read_all(connection):
    """Until the server ends it."""
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            found += part
    return found


def read_empty_answer(connection):
    """One answer to a request without a body."""
    found = b""
    while not found.endswith(b"\r\n\r\n0"):
        found += connection.recv(1)
    assert found.startswith(b"HTTP/1.1 200 ")


REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n"


def test_a_head_that_does_not_come_ends_its_connection():
    with connected(0.2) as (connect, _):
        silent, half, slow, twice = (connect() for _ in range(4))
        half.sendall(b"GET / HT")
        slow.sendall(REQUEST % (5, b"") + b"12")
        twice.sendall(REQUEST % (1, b"") + b"1" + b"POST / ")  # answered, and then begun again
        assert read_all(half).startswith(b"HTTP/1.1 408 ")
        assert read_all(silent) == b""
        answered = read_all(twice)
        assert (answered[:13], answered.count(b"HTTP/1.1 408")) == (b"HTTP/1.1 200 ", 1)
        slow.sendall(b"345")  # bodies have a limit of their own
        assert slow.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_the_rest_of_a_body_whose_request_is_answered_has_a_limit():
    with connected(0.2) as (connect, _):
        connection = connect()
        connection.sendall((REQUEST % (10, b"")).replace(b"/", b"/unread", 1))
        read_empty_answer(connection)
        connection.sendall(b"1")  # uvicorn bounds silence alone
        assert read_all(connection) == b""  # no 408, which would be the answer to another request


def test_a_client_that_does_not_read_is_cut_off():
    with connected(0.2) as (connect, gone):
        connect().sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        assert gone.wait(30)


def test_a_large_answer_takes_a_slow_client_as_long_as_it_takes():
    with connected(0.2) as (connect, gone):
        connection, found = connect(), 0
        connection.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        began = time.monotonic()
        while found < 40_000_000:
            part = connection.recv(1 << 19)
            assert part
            found += len(part)
            time.sleep(0.01)
        assert time.monotonic() - began > 0.5
        assert gone.wait(30)


def test_no_head_is_late_while_an_earlier_request_is_answered():
    with connected(0.2) as (connect, _):
        connection = connect()
        connection.sendall((REQUEST % (0, b"")).replace(b"/", b"/slow", 1) + b"POST / ")
        read_empty_answer(connection)
        connection.sendall((REQUEST % (0, b""))[7:])
        read_empty_answer(connection)


def test_a_head_has_a_size():
    with connected(30) as (connect, _):
        connection = connect()
        with suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\n")
            for number in range(100_000):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"a" * 1000))
        assert number < 20_000  # what lies in buffers besides
        other = connect()
        other.sendall(REQUEST % (1_000_000, b"X: %s\r\n" % (b"a" * 30_000)))
        other.sendall(b"1" * 1_000_000)
        other.shutdown(socket.SHUT_WR)
        assert read_all(other).endswith(b"1000000")


def test_connections_beyond_what_there_is_room_for_end_at_once():
    with connected(30, most=2) as (connect, _):
        first, second = connect(), connect()
        for connection in (first, second):
            connection.sendall(REQUEST % (0, b""))
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert read_all(connect()) == b""
        first.close()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            third = connect()
            with suppress(ConnectionError):
                third.sendall(REQUEST % (0, b""))
                if third.recv(1000).startswith(b"HTTP/1.1 200 "):
                    break
        else:
            pytest.fail("nobody is let in again")


def work(admission, clock, characters, seconds):
    with admission.admit(characters):
        clock.now += seconds


def test_what_stands_before_a_request_counts_in_seconds_of_work():
    clock = Clock()
    admission = Admission(waiting=100, wait=10, clock=clock)
    work(admission, clock, 500, 5)  # 100 characters a second
    with admission.admit(700), admission.admit(290):
        assert (admission.requests, admission.characters) == (2, 990)
        with admission.admit(5), admission.admit(5), pytest.raises(TooMany) as refused, admission.admit(1):
            pass
    assert refused.value.retry_after == 5  # ten seconds of work, of which half is to be done by then
    assert (admission.requests, admission.characters) == (0, 0)


def test_the_first_request_is_let_in_however_large():
    clock = Clock()
    admission = Admission(waiting=1, wait=1, clock=clock)
    work(admission, clock, 10, 1)
    with admission.admit(10**6):
        assert admission.requests == 1


def test_before_any_speed_is_known_the_number_of_requests_counts():
    clock = Clock()
    admission = Admission(waiting=2, wait=0.1, clock=clock)
    work(admission, clock, 0, 1)  # an empty text tells nothing
    with admission.admit(10**6), admission.admit(1), pytest.raises(TooMany), admission.admit(1):
        pass


def test_the_first_answer_of_many_at_once_tells_no_speed():
    clock = Clock()
    admission = Admission(waiting=1000, wait=10, clock=clock)
    with ExitStack() as others:
        ends = [others.enter_context(ExitStack()) for _ in range(64)]
        for each in ends:
            each.enter_context(admission.admit(70))
        clock.now += 1
        ends[0].close()
        with admission.admit(70):  # as if 64 requests took 64 seconds
            clock.now += 0.2
            for each in ends[1:]:
                each.close()
        # 65 of 70 characters in 1.2 seconds: 3,792 a second, and a little more, as the first one lies back.
        with admission.admit(37_000), admission.admit(1_300), pytest.raises(TooMany), admission.admit(1):
            pass


def test_a_slow_start_does_not_let_in_for_ever():
    clock = Clock()
    admission = Admission(waiting=1000, wait=10, clock=clock)
    with admission.admit(1_000):
        work(admission, clock, 10, 5)
        work(admission, clock, 10, 4)  # 9 seconds for 20 characters, of 1,000 that began before
        with admission.admit(1):
            pass
        work(admission, clock, 10, 6)
        with pytest.raises(TooMany), admission.admit(1):
            pass


def test_time_in_which_a_model_was_loaded_is_no_work():
    clock = Clock()
    admission = Admission(waiting=100, wait=10, clock=clock)
    with admission.admit(20):
        clock.now += 8
        admission.forget()  # it is loaded
        clock.now += 0.1
    with admission.admit(1_900), admission.admit(1):  # 200 a second
        pass


def test_work_that_failed_is_no_speed():
    clock = Clock()
    admission = Admission(waiting=100, wait=10, clock=clock)
    work(admission, clock, 100, 1)
    with pytest.raises(KeyError), admission.admit(10**9):
        raise KeyError
    with admission.admit(1000), pytest.raises(TooMany), admission.admit(1):
        pass


def test_idle_time_is_no_work():
    clock = Clock()
    admission = Admission(waiting=100, wait=10, clock=clock)
    work(admission, clock, 100, 1)
    clock.now += 3600
    with admission.admit(999), admission.admit(1), pytest.raises(TooMany), admission.admit(1):
        pass


def test_so_many_requests_a_minute_and_no_more():
    clock = Clock()
    limit = RateLimit(clock)
    for _ in range(30):
        limit.take("anna", 30)
    with pytest.raises(TooMany) as refused:
        limit.take("anna", 30)
    assert refused.value.retry_after == 2
    limit.take("berta", 30)
    clock.now += 2
    limit.take("anna", 30)
    with pytest.raises(TooMany):
        limit.take("anna", 30)
    for _ in range(1000):
        limit.take("carl", None)


def test_a_key_is_known_by_its_hash_alone(tmp_path):
    path = tmp_path / "keys"
    given = [add_key(path, name, rate) for name, rate in (("anna", None), ("berta", 60))]
    keys = read_keys(path)
    assert [(key.name, key.rate) for key in keys] == [("anna", None), ("berta", 60)]
    assert not any(each in path.read_text() for each in given)
    assert [find_key(keys, each).name for each in given] == ["anna", "berta"]
    for wrong in ("", "x", given[0][:-1], keys[0].sha256, "\ud800"):
        assert find_key(keys, wrong) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("anna 5\n", "line 1: has not name"),
        ("# comment\n\nanna many " + "0" * 64, "line 3: 'many'"),
        ("anna 0 " + "0" * 64, "'0' is no number of requests"),
        ("anna - 12345", "no SHA-256"),
    ],
)
def test_a_wrong_line_of_keys_is_named(tmp_path, text, error):
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(BadInputError, match=error):
        read_keys(path)


def test_a_key_has_one_name_and_keeps_what_was_there(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# mine\nanna - " + "0" * 64)  # no line end
    add_key(path, "berta", None)
    assert [key.name for key in read_keys(path)] == ["anna", "berta"]
    assert path.read_text().startswith("# mine\n")
    with pytest.raises(BadInputError, match="a key of anna already"):
        add_key(path, "anna", None)
    with pytest.raises(BadInputError, match="no name of a key"):
        add_key(path, "two words", None)


def test_languages_have_names_and_texts_have_languages():
    assert [language_name(code) for code in ("de", "pt_BR", "zh_Hant", "source")] == [
        "German",
        "Portuguese (Brazil)",
        "Chinese (Traditional)",
        "source",
    ]
    german = "Guten Tag, wie geht es Ihnen heute?"
    assert detect(german).language == "de"
    assert 80 < detect(german).confidence <= 100
    assert detect(german, ["en", "de_AT"]).language == "de_AT"
    assert detect(german, ["en", "fr"]).confidence < 20
    assert detect("", ["source"]) == detect("x", ["source"])
    assert detect("half \ud83d", ["en"]).language == "en"


def test_a_model_is_called_by_its_languages(tmp_path):
    folder = tmp_path / "a=b"
    folder.mkdir()
    (only,) = read_models([str(folder)])
    assert (only.source, only.target, only.name, only.path) == ("source", "target", "source-target", folder)
    first, second = read_models([f"en-de={tmp_path}", f"pt_BR-en={folder}"])
    assert (first.name, second.source, second.path) == ("en-de", "pt_BR", folder)


class FakeModels:
    """Models of English and Chinese into German whose outputs are made by a function of the source, within a time."""

    processes = ()
    served = (ServedModel("en", "de", Path()), ServedModel("zh", "de", Path()))
    sources = ("en", "zh")

    def __init__(self, translate, seconds=0.0):
        self._translate, self._seconds, self._admission = translate, seconds, Admission(10, 10.0)

    def sources_of(self, _):
        return self.sources

    def find(self, source, _):
        return self.served[self.sources.index(source)]

    def admission(self, _):
        return self._admission

    @asynccontextmanager
    async def use(self, model):
        async def call(name, **fields):
            await asyncio.sleep(self._seconds)
            if name == "split":
                return split_sentences(fields["text"], fields["language"])
            return [{"text": self._translate(text)} for text in fields["texts"]]

        yield SimpleNamespace(call=call, model=model)


def test_sentences_of_a_stream_stand_apart_where_the_translation_needs_it():
    models = FakeModels({"你好。": "Hallo.", "世界很大。": "Groß ist die Welt."}.get)
    service = Service(models, Limits(), Metrics(models))

    async def stream():
        return [each async for each in service.stream(Job(["你好。世界很大。"], "zh", "de"))]

    assert [(each["text"], each["separator"]) for each in asyncio.run(stream())] == [
        ("Hallo.", " "),
        ("Groß ist die Welt.", ""),
    ]


def test_texts_of_several_languages_are_one_request_with_one_limit_of_time():
    models = FakeModels(str, seconds=0.1)
    interface = deepl.DeepL(Service(models, Limits(time=0.15), Metrics(models)), None, None)
    texts = ["The dog runs on the beach today.", "世界很大，有很多城市。"]
    body = deepl.Translate(text=texts, target_lang="DE")
    with pytest.raises(TooSlow, match=r"within 0\.15 seconds"):
        asyncio.run(interface._translate(texts, body, "de", {}))


def test_where_the_server_fails_the_answer_is_safe_and_counted_too(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("a secret")

    monkeypatch.setattr(Service, "detect", fail)
    settings = ServeSettings((ServedModel("en", "de", tmp_path),))
    app = make_app(settings, Models(settings))

    async def ask(method, path, body=b""):
        sent = []
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [], "root_path": ""}

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        with suppress(RuntimeError):  # for the log
            await app(scope, receive, send)
        return sent

    start, answer = asyncio.run(ask("POST", "/detect", b'{"q": "x"}'))
    assert (start["status"], b"secret" in answer["body"]) == (500, False)
    assert dict(start["headers"])[b"x-content-type-options"] == b"nosniff"
    _, metrics = asyncio.run(ask("GET", "/metrics"))
    assert b'transduce_requests_total{path="/detect",status="500"} 1.0' in metrics["body"]


def test_messages_come_through_a_pipe_whole(tmp_path):
    messages = [{"text": "ü \ud83d 漢"}, {}, {"many": list(range(10_000))}]
    path = tmp_path / "pipe"
    path.write_bytes(b"".join(map(frames.pack, messages)) + frames.pack({"cut": 1})[:-1])
    with path.open("rb") as stream:
        assert [frames.read(stream) for _ in range(4)] == [*messages, None]

    async def receive():
        stream = asyncio.StreamReader()
        stream.feed_data(path.read_bytes())
        stream.feed_eof()
        return [await frames.receive(stream) for _ in range(4)]

    assert asyncio.run(receive()) == [*messages, None]


def test_a_file_without_keys_lets_nobody_in(tmp_path, caplog):
    """Who takes the last line out of it locks everybody out, and opens nothing."""
    request = Request({"type": "http", "headers": [], "client": ("127.0.0.1", 1), "path": "/", "query_string": b""})
    keys = tmp_path / "keys"
    keys.write_text("# name, requests a minute, SHA-256 of the key\n")
    door = Doorkeeper(app._read_keys(keys), None, ())
    assert door.asks_for_keys
    with pytest.raises(Forbidden, match="an API key is needed"):
        door.let_in(request)
    assert f"{keys}: holds no key, so nobody is let in: add one (--add-key NAME)" in caplog.text
    free = Doorkeeper(app._read_keys(None), None, ())
    assert not free.asks_for_keys
    free.let_in(request)


@pytest.mark.parametrize(
    ("given", "codes", "found"),
    [
        ("EN-US", ["en", "de"], "en"),
        ("pt", ["pt_BR", "de"], "pt_BR"),
        ("ZH", ["zh_Hans", "zh_Hant"], "ZH"),  # either could be meant
        ("PT-BR", ["pt", "pt_BR"], "pt_BR"),
        ("fr", ["en"], "fr"),
    ],
)
def test_deepls_codes_find_the_language_that_is_meant(given, codes, found):
    assert deepl._match(given, codes) == found
