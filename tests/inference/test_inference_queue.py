"""Requests that wait for searches: who gets what, and when."""

import threading
import time

import pytest

from tests.tiny_search import settings
from transduce.inference import RequestQueue
from transduce.search import Request

LENGTHS = {101: 3, 103: 7, 105: 2, 107: 5, 109: 6, 111: 4}


def make(lengths, beam=1):
    return [Request([4] * length, 9, settings(beam_size=beam), number) for number, length in lengths.items()]


def queue_of(lengths, room, searches=1):
    """A closed queue, and its requests by their numbers."""
    queue, requests = RequestQueue(room, searches), make(lengths)
    queue.put(requests)
    queue.close()
    return queue, {request.number: request for request in requests}


def numbers(taken):
    return [request.number for request in taken]


def test_the_longest_come_first_and_as_many_as_there_is_room_for():
    queue, known = queue_of(LENGTHS, 14)
    assert numbers(queue.take(0, [])) == [103, 109]  # two times seven
    assert queue.take(0, [known[103], known[109]]) == []
    assert numbers(queue.take(0, [known[109]])) == [107]  # two times six, whatever comes in
    assert numbers(queue.take(0, [])) == [111, 101, 105]  # three times four
    assert queue.take(0, []) == []


def test_one_comes_in_however_long():
    queue, known = queue_of(LENGTHS, 1)
    assert [numbers(queue.take(0, [])) for _ in range(7)] == [[103], [109], [107], [111], [101], [105], []]
    assert queue_of(LENGTHS, 1)[0].take(0, [known[103]]) == []


def test_more_come_when_enough_have_left_or_what_waits_fits_in():
    queue, known = queue_of(dict.fromkeys(range(100), 1), 40)
    every = list(known.values())
    assert len(queue.take(0, [])) == 40
    assert queue.take(0, every[:39]) == []
    assert len(queue.take(0, [])) == 40
    assert len(queue.take(0, every[:20])) == 20
    assert queue.take(0, every[:20]) == []
    queue, _ = queue_of(dict.fromkeys(range(41), 1), 40)
    queue.take(0, [])
    assert numbers(queue.take(0, every[:39])) == [40]


def test_rows_of_different_beams_share_the_room():
    queue = RequestQueue(24)
    queue.put([*make({1: 4}, beam=3), *make({2: 3, 3: 3}, beam=1), *make({4: 2}, beam=2)])
    taken = queue.take(0, [])
    assert numbers(taken) == [1, 2, 3]  # five rows times four; with the last, seven
    assert numbers(queue.take(0, taken[1:])) == [4]  # four rows times three


def test_lanes_are_alike_and_who_has_none_takes_half_of_anothers():
    queue, _ = queue_of(LENGTHS, 100, 2)
    assert numbers(queue.take(1, [])) == [109, 111, 105]
    assert numbers(queue.take(1, [])) == [103, 107]
    assert numbers(queue.take(0, [])) == [101]
    assert queue.take(1, []) == queue.take(0, []) == []


def test_what_fails_leaves_nothing_to_the_others():
    queue, _ = queue_of(LENGTHS, 14, 2)
    with queue:
        assert numbers(queue.take(0, [])) == [103, 107]
    with pytest.raises(ValueError, match="failed"), queue:
        raise ValueError("failed")
    assert queue.take(1, []) == []


def test_nothing_is_put_into_a_closed_queue():
    queue, known = queue_of(LENGTHS, 14)
    with pytest.raises(RuntimeError, match="closed"):
        queue.put(known.values())


def test_who_has_nothing_waits_without_spinning_for_more_or_the_end():
    queue, found, spent = RequestQueue(14), [], []

    def work():
        began = time.thread_time()
        while taken := queue.take(0, []):
            found.append(numbers(taken))
        spent.append(time.thread_time() - began)

    thread = threading.Thread(target=work)
    thread.start()
    first, second = make({1: 3, 2: 3})
    assert queue.take(0, [first]) == []  # who has some goes on with these
    for request in (first, second):
        time.sleep(0.2)
        queue.put([request])
        while not found or found[-1] != [request.number]:
            time.sleep(0.001)
    time.sleep(0.2)
    assert thread.is_alive()
    queue.close()
    thread.join(10)
    assert not thread.is_alive()
    assert found == [[1], [2]]
    assert spent[0] < 0.1


def test_searches_that_wait_or_have_ended_are_not_at_work():
    queue = RequestQueue(14, 2)
    assert queue.at_work == 2
    waiting = threading.Thread(target=queue.take, args=(1, []))
    waiting.start()
    while queue.at_work == 2:
        time.sleep(0.001)
    queue.put(make({1: 3}))
    waiting.join(10)
    assert queue.at_work == 2
    queue.close()
    assert queue.take(0, []) == []
    assert queue.at_work == 1
