"""How the search for one output went: its tree over tokens, with what might have come next at every place."""

from dataclasses import asdict, dataclass, field
from typing import Any, final

from transduce.data import bare
from transduce.search import Recorder, SearchTree, build_tree
from transduce.text import TokenizerPair


@final
@dataclass(frozen=True)
class SearchTrace:
    """All hypotheses of the search for the output of a text, from the begin symbol on.

    ``source`` is what was read, in tokens, the end symbol last. ``text`` is the best output, which the tree's ``best``
    nodes spell. At most ``beam_size`` hypotheses were open at a time; of samples, it is their number.
    """

    source: tuple[str, ...]
    text: str
    beam_size: int
    tree: SearchTree[str] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it, each node with its ``id``: its place in the list, which children name it by."""
        nodes = [{"id": index, **asdict(node)} for index, node in enumerate(self.tree.nodes)]
        return {"source": list(self.source), "text": self.text, "beam_size": self.beam_size, "nodes": nodes}


def describe_search(tokenizers: TokenizerPair, source: str, text: str, recorder: Recorder) -> SearchTrace:
    """What was recorded of the one search for the output of ``source``, which is ``text``."""
    (rounds,) = recorder.rounds.values()
    special, target = tokenizers.special, tokenizers.target
    (ids,) = tokenizers.source.encode([bare(source)])
    tree = build_tree(rounds, special.begin)
    written = sorted(
        {node.symbol for node in tree.nodes} | {each.symbol for node in tree.nodes for each in node.following}
    )
    names = dict(zip(written, target.tokens(written), strict=True))
    read = tuple(tokenizers.source.tokens([*ids, special.end]))
    return SearchTrace(read, text, len(rounds[0].kept), tree.map(names.__getitem__))
