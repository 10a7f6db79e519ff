import torch

from transduce.kernels import Mask

CPU = torch.device("cpu")


def marks(mask, queries, keys):
    return ["".join("x" if cell else "." for cell in row) for row in mask.matrix(queries, keys, CPU)[0].tolist()]


def test_nothing_said_is_nothing_hidden():
    assert Mask().matrix(3, 5, CPU) is None


def test_padding_is_hidden_from_every_query():
    mask = Mask(torch.tensor([[True, True, False], [True, False, False]]))
    assert mask.matrix(2, 3, CPU).tolist() == [[[True, True, False]], [[True, False, False]]]


def test_causal_sees_itself_and_the_past():
    assert marks(Mask(causal=True), 3, 3) == ["x..", "xx.", "xxx"]


def test_causal_with_a_past_before_the_queries():
    assert marks(Mask(causal=True), 2, 5) == ["xxxx.", "xxxxx"]


def test_a_reach_of_one_sees_its_neighbours():
    assert marks(Mask(window=1), 4, 4) == ["xx..", "xxx.", ".xxx", "..xx"]
    assert marks(Mask(window=1, causal=True), 4, 4) == ["x...", "xx..", ".xx.", "..xx"]
    assert marks(Mask(window=2, causal=True), 1, 5) == ["..xxx"]


def test_all_conditions_hold_together():
    mask = Mask(torch.tensor([[False, True, True, True]]), causal=True, window=1)
    assert marks(mask, 4, 4) == ["....", ".x..", ".xx.", "..xx"]


def test_a_part_is_cut_from_the_matrix():
    mask = Mask(torch.tensor([[True] * 5 + [False] * 2]), causal=True, window=3)
    whole = mask.matrix(7, 7, CPU)
    assert mask.part(range(2, 6), range(1, 4), CPU).equal(whole[:, 2:6, 1:4])
