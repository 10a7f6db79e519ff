"""The most probable continuations of each sentence's hypotheses, ranked together."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.kernels.allowed import Choices, LogitColumns
from transduce.kernels.interface import ListsAddress, RankingAddress
from transduce.kernels.native import address, call, has_native


def rank_continuations(
    logits: Float[Tensor, "rows columns"],
    so_far: Float[Tensor, "sentences beam"],
    banned: Sequence[int],
    must_end: Bool[Tensor, " sentences"],
    end: int,
    count: int,
    columns: LogitColumns | None = None,
    choices: Choices | None = None,
) -> tuple[Float[Tensor, "sentences count"], Int[Tensor, "sentences count"]]:
    """The ``count`` largest of so_far + log softmax(logits) of each sentence, and where: beam x vocabulary + symbol.

    ``banned`` symbols are never among them; where a sentence ``must_end``, nothing but ``end`` is. What is not possible
    has minus infinity for its value; of a row whose ``so_far`` is minus infinity, no logit counts. ``columns`` says of
    which symbols the logits are, where they are not those of the vocabulary in their order, and which a sentence may
    write: its softmax is over these. ``choices`` say which of all these a row may be continued with, and change no
    softmax; they are on the CPU. May use ``logits`` up.
    """
    if has_native(so_far):
        logits = logits.float().contiguous()
        (sentences, beam), width = so_far.shape, logits.shape[1]
        values, indices = so_far.new_empty(sentences, count), must_end.new_empty(sentences, count, dtype=torch.long)
        symbols, so_far, must_end = symbols_of(tuple(banned)), so_far.contiguous(), must_end.contiguous()
        ranking = RankingAddress(
            logits=address(logits, torch.float32, sentences * beam, width),
            so_far=address(so_far, torch.float32, sentences, beam),
            sentences=sentences,
            beam=beam,
            width=width,
            banned=address(symbols, torch.long, len(banned)),
            bans=len(banned),
            must_end=address(must_end, torch.bool, sentences),
            end=end,
            count=count,
            **choices_addresses(choices, sentences * beam),
            values=address(values, torch.float32, sentences, count),
            indices=address(indices, torch.long, sentences, count),
        )
        call("rank", None, ranking, None if columns is None else lists_address(columns, sentences))
        return values, indices
    logits = logits if columns is None else columns.spread(logits)
    scores = torch.log_softmax(logits.float(), dim=-1)
    scores = (scores if choices is None else choices.keep(scores)).view(*so_far.shape, -1)
    scores[:, :, list(banned)] = -torch.inf
    others = torch.arange(scores.shape[2], device=scores.device) != end
    scores = scores.masked_fill(must_end.view(-1, 1, 1) & others, -torch.inf)
    total = (scores + so_far.unsqueeze(2)).masked_fill(so_far.isneginf().unsqueeze(2), -torch.inf)
    best = total.flatten(1).topk(count, dim=1)
    return best.values, best.indices


@lru_cache
def symbols_of(banned: tuple[int, ...]) -> Int[Tensor, " banned"]:
    """As C++ reads them. Nobody writes into it: every step of a search asks for the same."""
    return torch.tensor(banned, dtype=torch.long)


def choices_addresses(choices: Choices | None, rows: int) -> dict[str, int | None]:
    """What the C++ kernels have to know of choices; they must outlive its use."""
    if choices is None:
        return {"which": None, "first": None, "choices": None, "kinds": 0}
    kinds = len(choices.first) - 1
    return {
        "which": address(choices.which, torch.long, rows),
        "first": address(choices.first, torch.long, kinds + 1),
        "choices": address(choices.symbols, torch.long, len(choices.symbols)),
        "kinds": kinds,
    }


def lists_address(columns: LogitColumns, sentences: int) -> ListsAddress:
    """What the C++ kernels have to know of them; they must outlive its use."""
    own, longest = columns.allowed, columns.allowed.symbols.shape[1]
    return ListsAddress(
        address(columns.columns, torch.long, own.vocabulary),
        address(own.symbols, torch.long, sentences, longest),
        address(own.lengths, torch.long, sentences),
        *(longest, own.vocabulary),
    )
