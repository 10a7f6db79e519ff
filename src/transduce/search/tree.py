"""The search of one sentence as a tree: what was open in each round, what ended, what was dropped, what won."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, TypeVar, final

from transduce.search.recording import Round

Symbol = TypeVar("Symbol")
Other = TypeVar("Other")

NodeState = Literal["open", "ended", "dropped"]
_ROOT: Final = 0


@final
@dataclass(frozen=True)
class NextSymbol(Generic[Symbol]):
    """A symbol that may come next, and its probability."""

    symbol: Symbol
    probability: float


@final
@dataclass(frozen=True)
class SearchNode(Generic[Symbol]):
    """A hypothesis, which is what its parent has written and one symbol more.

    ``parent`` is the parent's index in the tree's nodes; the root, which has written nothing but the begin symbol, has
    none. ``round`` is how many symbols it has written. ``log_probability`` is the natural one of all that it has
    written, ``symbol_log_probability`` that of its newest symbol.

    ``open``: it was in the beam after its round. ``ended``: it is an output; ``score`` is its score, ``rank`` its place
    among all that ended, 1 being the best. ``dropped``: it was ranked among the best continuations, and not kept.
    ``best`` says whether the best output is or begins with it.

    ``following`` are the most probable next symbols, the most probable one first: their shares of the whole vocabulary,
    before anything is forbidden or forced. Only what was open, and read for another round, has some.
    """

    parent: int | None
    symbol: Symbol
    round: int
    log_probability: float
    symbol_log_probability: float
    state: NodeState
    score: float | None = None
    rank: int | None = None
    best: bool = False
    following: tuple[NextSymbol[Symbol], ...] = ()


@final
@dataclass(frozen=True)
class SearchTree(Generic[Symbol]):
    """All hypotheses of a search: the root first, then round by round, each round as it was ranked.

    The numbers are the search's own, so that those of outputs are the outputs' to the last bit: products are in the
    number format of the model, softmax and sums in float32.
    """

    nodes: tuple[SearchNode[Symbol], ...]

    def path(self, index: int) -> tuple[Symbol, ...]:
        """What a node has written, its own symbol last, without the begin symbol."""
        return tuple(self.nodes[each].symbol for each in [*self._ancestors(index)][-2::-1])

    def finished(self) -> list[int]:
        """The nodes that ended, the best one first."""
        ended = [index for index, node in enumerate(self.nodes) if node.rank is not None]
        return sorted(ended, key=lambda index: self.nodes[index].rank or 0)

    def map(self, name: Callable[[Symbol], Other]) -> "SearchTree[Other]":
        """The same tree of other symbols, such as tokens in place of ids."""
        return SearchTree(
            tuple(
                SearchNode(
                    node.parent,
                    name(node.symbol),
                    node.round,
                    node.log_probability,
                    node.symbol_log_probability,
                    node.state,
                    node.score,
                    node.rank,
                    node.best,
                    tuple(NextSymbol(name(each.symbol), each.probability) for each in node.following),
                )
                for node in self.nodes
            )
        )

    def _ancestors(self, index: int) -> Iterator[int]:
        """The node itself, its parent, and so on to the root."""
        at: int | None = index
        while at is not None:
            yield at
            at = self.nodes[at].parent


def build_tree(rounds: Sequence[Round], begin_id: int) -> SearchTree[int]:
    """The tree of a sentence by its rounds, as a ``Recorder`` has them."""
    nodes = [SearchNode(None, begin_id, 0, 0.0, 0.0, "open")]
    places = [_ROOT] * len(rounds[0].following) if rounds else []
    for round_ in rounds:
        for place, following in zip(places, round_.following, strict=True):
            if following:
                some = tuple(NextSymbol(*each) for each in following)
                nodes[place] = replace(nodes[place], following=some)
        scores = dict(round_.ended)
        made = {}
        for candidate in round_.considered:
            log_probability, parent, symbol = candidate
            if log_probability == -math.inf:
                continue
            before = nodes[places[parent]].log_probability
            state: NodeState = "ended" if candidate in scores else "open" if candidate in round_.kept else "dropped"
            made[candidate] = len(nodes)
            nodes.append(
                SearchNode(
                    places[parent],
                    symbol,
                    round_.written + 1,
                    log_probability,
                    log_probability - before,
                    state,
                    scores.get(candidate),
                )
            )
        places = [made.get(candidate, _ROOT) for candidate in round_.kept]
    return _ranked(SearchTree(tuple(nodes)))


def _ranked(tree: SearchTree[Any]) -> SearchTree[Any]:
    """With the places of what has ended, and the way to the best: of equal scores, what ended first comes first."""
    scores = {index: node.score for index, node in enumerate(tree.nodes) if node.score is not None}
    order = sorted(scores, key=lambda index: -scores[index])
    ranks = {index: rank for rank, index in enumerate(order, 1)}
    way = {*tree._ancestors(order[0])} if order else set()
    return SearchTree(
        tuple(replace(node, rank=ranks.get(index), best=index in way) for index, node in enumerate(tree.nodes))
    )
