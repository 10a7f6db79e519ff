"""The attention of a recurrent decoder: in each step its state gathers from the encoder's outputs."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config.recurrent import RecurrentConfig
from transduce.kernels import RaggedLayout, Sources, attend_additively, has_additive
from transduce.layers.attention_windows import TrainableWindow, around_median, normalize
from transduce.layers.recurrent_scores import HiddenLayerScore, LinearScore, make_score


@final
@dataclass(frozen=True)
class Attended:
    """The sources as attention reads them: the encoder's outputs, what scores are made of, and what is no padding.

    Padding is on the right. Rows of a beam share their sentence's.
    """

    values: Float[Tensor, "sentences source hidden"]
    keys: Float[Tensor, "sentences source size"]
    real: Bool[Tensor, "sentences source"]

    @cached_property
    def bounds(self) -> tuple[Int[Tensor, " sentences"], Int[Tensor, " sentences"]]:
        """Where each source's symbols begin and end in the flattened batch."""
        begins = torch.arange(len(self.real)) * self.real.shape[1]
        return begins, begins + self.real.sum(dim=1)

    def select(self, sentences: Int[Tensor, " chosen"]) -> "Attended":
        """Only these sentences, in this order."""
        return Attended(self.values[sentences], self.keys[sentences], self.real[sentences])

    def join(self, other: "Attended") -> "Attended":
        """The sentences of both, the shorter sources padded to the longer ones' positions."""
        source = max(self.real.shape[1], other.real.shape[1])
        sides = [
            (
                F.pad(side.values, (0, 0, 0, source - side.real.shape[1])),
                F.pad(side.keys, (0, 0, 0, source - side.real.shape[1])),
                F.pad(side.real, (0, source - side.real.shape[1])),
            )
            for side in (self, other)
        ]
        return Attended(*(torch.cat(parts) for parts in zip(*sides, strict=True)))


@final
@dataclass(frozen=True)
class Alignment:
    """What attention remembers of the step before, row by row; a sentence's rows are adjacent.

    ``weights`` are kept where scores or windows depend on them, ``centres`` where there is a trainable window. At the
    start, the weights are 1 on the first position and 0 elsewhere: reading begins there (as in Chorowski et al.'s own
    software), and a window around the median is one around the first position. The centre is the place before it, -1.
    """

    rows: int
    weights: Float[Tensor, "rows source"] | None = None
    centres: Float[Tensor, " rows"] | None = None

    def select(self, rows: Int[Tensor, " chosen"]) -> "Alignment":
        """Row i goes on from row ``rows[i]``: for a beam that is reordered, and for sentences that leave."""
        weights = None if self.weights is None else self.weights[rows]
        centres = None if self.centres is None else self.centres[rows]
        return Alignment(len(rows), weights, centres)

    def join(self, other: "Alignment") -> "Alignment":
        """The rows of both, of the same attention; positions that only the other's sources have get weight 0."""
        weights = centres = None
        if self.weights is not None and other.weights is not None:
            source = max(self.weights.shape[1], other.weights.shape[1])
            weights = torch.cat([F.pad(each, (0, source - each.shape[1])) for each in (self.weights, other.weights)])
        if self.centres is not None and other.centres is not None:
            centres = torch.cat([self.centres, other.centres])
        return Alignment(self.rows + other.rows, weights, centres)


@final
class RecurrentAttention(nn.Module):
    """c_i = sum over j of a_ij h_j: what step i of a decoder reads of the source.

    The weights a_i are made of the scores e_ij of the decoder's state s and each output h_j of the encoder
    (``recurrent_scores``), of all positions or of those in a window, by a softmax or what stands for it
    (``attention_windows``). Whether s is the state before the step or after it is the decoder's choice. The end symbol
    is a position as any; a source without a position gives the context 0.

    ``needs_history``: the weights of a step depend on those before it, so that consecutive steps take a loop. Without,
    they are computed at once.
    """

    def __init__(self, config: RecurrentConfig, query_size: int, value_size: int) -> None:
        super().__init__()
        self.config = config
        self.score = make_score(config, query_size, value_size)
        self.window = TrainableWindow(config, query_size) if config.attention_window == "trainable" else None
        self.needs_history = config.attention_score == "location" or config.attention_window == "median"

    def attend(
        self, values: Float[Tensor, "sentences source hidden"], real: Bool[Tensor, "sentences source"]
    ) -> Attended:
        """What is computed once for a source: the part of the scores that no state has a say in."""
        return Attended(values, self.score.keys(values), real)

    def sources(self, values: Float[Tensor, "tokens hidden"], layout: RaggedLayout) -> Sources | None:
        """What ``attend`` computes, for the C++ kernels; None where these are missing or do not know this attention."""
        score = self.plain_score
        if score is None or not has_additive(values, score.vector):
            return None
        keys = score.keys(values).float().contiguous()
        return Sources.ragged(keys, values.contiguous(), score.vector, layout, self.config.attention_sharpness)

    @property
    def is_constant(self) -> bool:
        """Whether every step has the same weights, as the softmax cancels what the state adds to all of its scores."""
        config = self.config
        alike = not config.attention_smoothing and config.attention_window == "none"
        return alike and isinstance(self.score, LinearScore)

    @property
    def asking(self) -> Float[Tensor, "units queries"] | None:
        """W, which makes a state a query of ``sources``; None where there are none, or it is prepacked."""
        score = self.plain_score
        return score.query.weight if score is not None and isinstance(score.query, nn.Linear) else None

    @property
    def plain_score(self) -> HiddenLayerScore | None:
        """The score that the C++ kernels know: one with a hidden layer, whose softmax is the weights; else None."""
        config, score = self.config, self.score
        every = not config.attention_smoothing and config.attention_window == "none" and config.attention_top_k is None
        return score if every and isinstance(score, HiddenLayerScore) and score.location is None else None

    def start(self, attended: Attended, beam: int) -> Alignment:
        """Nothing has been looked at yet, in ``beam`` rows for each sentence."""
        sentences, source = attended.real.shape
        rows, device = sentences * beam, attended.real.device
        dtype = torch.promote_types(attended.values.dtype, torch.float32)
        weights = centres = None
        if self.needs_history:
            weights = torch.zeros(rows, source, dtype=dtype, device=device)
            weights[:, :1] = 1
        if self.window is not None:
            centres = torch.full((rows,), -1, dtype=dtype, device=device)
        return Alignment(rows, weights, centres)

    def forward(
        self, query: Float[Tensor, "sentences queries size"], attended: Attended, previous: Alignment
    ) -> tuple[Float[Tensor, "sentences queries hidden"], Float[Tensor, "sentences queries source"], Alignment]:
        """Contexts, weights (float32 at least), and what the next step has to know.

        The queries of a sentence are one step of each row of its beam; or, where there is one row for each sentence,
        consecutive steps.

        Raises:
            ValueError: There are neither as many queries as rows nor one row for each sentence.
        """
        sentences, queries, _ = query.shape
        if previous.rows == sentences * queries:
            found = self._look_in_kernels(query, attended)
            return self._look(query, attended, previous, beam=queries) if found is None else (*found, previous)
        if previous.rows != sentences:
            raise ValueError(
                f"{queries} queries for each of {sentences} sentences, after a step of {previous.rows} rows: give a "
                "query for each row, or consecutive ones where each sentence has one row"
            )
        if not self.needs_history:
            return self._look(query, attended, previous, beam=1)
        contexts, weights = [], []
        for step in range(queries):
            context, looked, previous = self._look(query[:, step : step + 1], attended, previous, beam=1)
            contexts.append(context)
            weights.append(looked)
        return torch.cat(contexts, dim=1), torch.cat(weights, dim=1), previous

    def _look_in_kernels(
        self, query: Float[Tensor, "sentences queries size"], attended: Attended
    ) -> tuple[Float[Tensor, "sentences queries hidden"], Float[Tensor, "sentences queries source"]] | None:
        """Contexts and weights by the C++ kernels; None where these are missing or do not know this attention."""
        score = self.plain_score
        if score is None or not has_additive(attended.values, attended.keys, score.vector):
            return None
        sentences, queries, _ = query.shape
        begins, ends = attended.bounds
        flat = attended.keys.flatten(0, 1), attended.values.flatten(0, 1), score.vector
        sources = Sources(*flat, begins, ends, attended.real.shape[1], self.config.attention_sharpness)
        asked = score.query(query).flatten(0, 1)
        contexts, weights = attend_additively(asked, sources, torch.arange(sentences + 1) * queries)
        return contexts.view(sentences, queries, -1), weights.view(sentences, queries, -1)

    def _look(
        self, query: Float[Tensor, "sentences queries size"], attended: Attended, previous: Alignment, *, beam: int
    ) -> tuple[Float[Tensor, "sentences queries hidden"], Float[Tensor, "sentences queries source"], Alignment]:
        """One step of every row, or consecutive ones that do not depend on each other's weights."""
        sentences, source = attended.real.shape
        before = None if previous.weights is None else previous.weights.view(sentences, beam, source)
        allowed, logarithms, centres = attended.real.unsqueeze(1), None, previous.centres
        if self.window is not None and centres is not None:
            moved = self.window.centres(query, centres.view(sentences, beam))
            allowed, logarithms = self.window(query, moved, attended.real)
            centres = moved[:, -beam:].flatten()
        elif self.config.attention_window == "median" and before is not None:
            allowed = allowed & around_median(before, self.config.attention_window_reach)
        weights = normalize(self.score(query, attended.keys, before), allowed, logarithms, self.config)
        context = weights.to(attended.values.dtype) @ attended.values
        kept = None if before is None else weights.flatten(0, 1)
        return context, weights, Alignment(previous.rows, kept, centres)
