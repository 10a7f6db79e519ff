"""What waits for searches: who gets what, and when."""

import pytest

from transduce.inference.queue import Queue

LENGTHS = {101: 3, 103: 7, 105: 2, 107: 5, 109: 6, 111: 4}


def test_the_longest_come_first_and_as_many_as_there_is_room_for():
    queue = Queue(LENGTHS, 14, 1)
    assert queue.take(0, []) == [103, 109]  # two times seven
    assert queue.take(0, [103, 109]) == []
    assert queue.take(0, [109]) == [107]  # two times six, whatever comes in
    assert queue.take(0, []) == [111, 101, 105]  # three times four
    assert queue.take(0, []) == []


def test_one_comes_in_however_long():
    queue = Queue(LENGTHS, 1, 1)
    assert [queue.take(0, []) for _ in range(7)] == [[103], [109], [107], [111], [101], [105], []]
    assert Queue(LENGTHS, 1, 1).take(0, [103]) == []


def test_more_come_when_enough_have_left_or_what_waits_fits_in():
    queue = Queue(dict.fromkeys(range(100), 1), 40, 1)
    assert len(queue.take(0, [])) == 40
    assert queue.take(0, range(39)) == []
    assert len(queue.take(0, [])) == 40
    assert len(queue.take(0, range(20))) == 20
    assert queue.take(0, range(20)) == []
    queue = Queue(dict.fromkeys(range(41), 1), 40, 1)
    queue.take(0, [])
    assert queue.take(0, range(39)) == [40]


def test_lanes_are_alike_and_who_has_none_takes_half_of_anothers():
    queue = Queue(LENGTHS, 100, 2)
    assert queue.take(1, []) == [109, 111, 105]
    assert queue.take(1, []) == [103, 107]
    assert queue.take(0, []) == [101]
    assert queue.take(1, []) == queue.take(0, []) == []


def test_what_fails_leaves_nothing_to_the_others():
    queue = Queue(LENGTHS, 14, 2)
    with queue:
        assert queue.take(0, []) == [103, 107]
    with pytest.raises(ValueError, match="failed"), queue:
        raise ValueError("failed")
    assert queue.take(1, []) == []


def test_what_could_not_begin_waits_again_before_the_others():
    queue = Queue(LENGTHS, 14, 1)
    taken = queue.take(0, [])
    queue.put_back(0, taken)
    assert queue.take(0, []) == taken == [103, 109]
