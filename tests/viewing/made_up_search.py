"""A search with a beam of two and three rounds, whose numbers a person can check."""

import math
from dataclasses import dataclass
from typing import Any

# Parent, symbol, its probability, state, rank; what ended is scored by the mean log-probability of a symbol.
NODES = [
    (None, "<s>", 1.0, "open", None),
    (0, " a", 0.6, "open", None),
    (0, " b</script><!--", 0.3, "open", None),
    (0, "</s>", 0.05, "dropped", None),
    (1, "c", 0.5, "open", None),
    (1, "</s>", 0.4, "ended", 2),
    (2, " d", 0.2, "open", None),
    (2, "</s>", 0.1, "dropped", None),
    (4, "</s>", 0.9, "ended", 1),
    (4, " d", 0.08, "open", None),
]
BEST = [0, 1, 4, 8]
LOST = [2, 6]  # open, and neither an output nor what is still open begins with it


@dataclass
class Search:
    data: dict[str, Any]

    def to_dict(self):
        return self.data


def made_up_search():
    nodes = []
    for index, (parent, symbol, probability, state, rank) in enumerate(NODES):
        before = {"round": -1, "log_probability": 0.0} if parent is None else nodes[parent]
        total, length = before["log_probability"] + math.log(probability), before["round"] + 1
        after = [{"symbol": each[1], "probability": each[2]} for each in NODES if each[0] == index]
        if after:
            after.append({"symbol": " never", "probability": 0.01})
        nodes.append(
            {
                "id": index,
                "parent": parent,
                "symbol": symbol,
                "round": length,
                "log_probability": total,
                "symbol_log_probability": math.log(probability),
                "state": state,
                "score": total / length if rank else None,
                "rank": rank,
                "best": index in BEST,
                "following": after,
            }
        )
    return Search({"source": [" x", "y", "</s>"], "text": "ac", "beam_size": 2, "nodes": nodes})
