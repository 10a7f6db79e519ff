"""A running search that threads hand requests to, with options of their own, and cancel: the ground of a server."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from tests.inference.test_inference_invariance import SOURCES, engine
from tests.sparing import one_each
from tests.tiny_search import settings
from transduce.inference.running import RunningSearch
from transduce.search import Cancelled, NoRepeat, Sampling, Without

OPTIONS = [
    {"beam_size": 1},
    {"beam_size": 4, "n_best": 2},
    {"beam_size": 4, "constraints": (NoRepeat(2), Without([(9,), (11, 12)]))},
    {"beam_size": 3, "n_best": 3, "sampling": Sampling(seed=5)},
    {"beam_size": 2, "diversity": 0.4, "min_length": 5},
    {"beam_size": 2, "coverage": 0.2},
]


class Server:
    """What a service does: a thread that searches, and outcomes for whoever waits for them."""

    def __init__(self, engine, searches=None):
        self.engine, self.queue, self.outcomes, self.changed = engine, engine.queue(searches), {}, threading.Condition()
        self.error = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            self.engine.serve(self.queue, self.finish)
        except Exception as error:
            self.error = error

    def finish(self, request, outcome):
        with self.changed:
            self.outcomes[request] = outcome
            self.changed.notify_all()

    def submit(self, row, options):
        request = self.engine.request(SOURCES[row], settings(**options), 11, number=row)
        self.queue.put([request])
        return request

    def wait(self, request):
        with self.changed:
            assert self.changed.wait_for(lambda: request in self.outcomes, 60)
            return self.outcomes[request]

    def close(self):
        self.queue.close()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.mark.parametrize(("precision", "workers"), [*one_each(("float32", "int8"), (1, 2))])
def test_threads_share_a_running_search(precision, workers):
    mine = engine(precision, workers, 300)
    pairs = [(row, which) for row in range(len(SOURCES)) for which in range(len(OPTIONS))]
    asked = {number: random.Random(number).sample(pairs, 20) for number in range(4)}
    expected = {
        (row, which): mine.search([SOURCES[row]], settings(**OPTIONS[which]), 11, numbers=[row])[0]
        for row, which in {(3, 0), *chain.from_iterable(asked.values())}
    }
    server = Server(mine)

    def user(number):
        draw, cancelled = random.Random(number), 0
        for row, which in asked[number]:
            request = server.submit(row, OPTIONS[which])
            if draw.random() < 0.3:
                request.cancelled = True
            outcome = server.wait(request)
            cancelled += isinstance(outcome, Cancelled)
            assert outcome == expected[row, which] or (request.cancelled and outcome == Cancelled())
        return cancelled

    with ThreadPoolExecutor(4) as pool:
        cancelled = sum(pool.map(user, range(4)))
    # The engine can be used beside it.
    assert mine.search([SOURCES[3]] * 20, settings(**OPTIONS[0]), 11)[19] == expected[3, 0]
    server.close()
    assert cancelled > 0
    assert server.error is None


def test_who_is_interrupted_has_nothing_more_searched_for(monkeypatch):
    mine, given = engine("float32", 1, 300), []

    def interrupt(_, requests):
        given.extend(requests)
        raise KeyboardInterrupt

    with mine.keep_searching():
        monkeypatch.setattr(RunningSearch, "search", interrupt)
        with pytest.raises(KeyboardInterrupt):
            mine.search([SOURCES[3]] * 20, settings(**OPTIONS[0]), 11)
    assert len(given) == 20
    assert all(each.cancelled for each in given)


def test_a_call_that_comes_as_the_running_search_closes_searches_by_itself():
    mine = engine("float32", 1, 300)
    alone = mine.search([SOURCES[3]], settings(**OPTIONS[0]), 11)
    with mine.keep_searching() as running:
        running.close()  # as another thread's block may end in the middle of a call
        assert mine.search([SOURCES[3]], settings(**OPTIONS[0]), 11) == alone


def test_a_search_that_fails_ends_the_serving_and_says_why(monkeypatch):
    mine = engine("float32", 1, 300)

    def fail(source):
        raise ValueError("broken")

    monkeypatch.setattr(mine._model, "encode", fail)
    server = Server(mine, 2)
    server.submit(3, OPTIONS[0])
    server.thread.join(60)
    assert isinstance(server.error, ValueError)
    with pytest.raises(RuntimeError, match="closed"):
        server.submit(3, OPTIONS[0])
