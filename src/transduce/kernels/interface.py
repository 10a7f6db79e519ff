"""What the C++ kernels are called with: interface.cpp tells whether a library means the same.

Structures are those of the headers (structures.h, stack.h, sublayers.h, dropping.h), field by field.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, Final, final

from transduce.config.model import Activation

# Counts up with every change of what follows, or of what it means; interface.cpp has the same number.
INTERFACE: Final = 13
_WHOLE, _REAL, _DOUBLE, _ARRAY = ctypes.c_int64, ctypes.c_float, ctypes.c_double, ctypes.c_void_p


@final
class Chance(ctypes.Structure):
    """Which elements stay, and what they are multiplied with; ``seeds`` is where those of the rows lie."""

    _fields_ = (("seeds", _ARRAY), ("kept", ctypes.c_int32), ("scale", _REAL))


@final
class Sequences(ctypes.Structure):
    """The sizes of an attention over a ragged batch; strides are of rows, in elements."""

    _fields_ = (
        *((name, _WHOLE) for name in ("batch", "heads", "d_k", "d_v")),
        *((name, _ARRAY) for name in ("queries", "keys")),
        *((name, _WHOLE) for name in ("query_stride", "key_stride", "value_stride", "output_stride")),
        ("causal", ctypes.c_int32),
        ("scale", _REAL),
    )


MOST_MAPS: Final = 3  # that the kernels of linear maps take at once
_ARRAYS: Final = _ARRAY * MOST_MAPS


@final
class MapsAddress(ctypes.Structure):
    """Linear maps of training: where weights, biases and the gradients of both lie, and their sizes."""

    _fields_ = (
        *((name, _ARRAYS) for name in ("weights", "biases", "of_weights", "of_biases")),
        ("outputs", _WHOLE * MOST_MAPS),
        ("inputs", _WHOLE),
    )


@final
class MatrixAddress(ctypes.Structure):
    """A prepacked matrix."""

    _fields_ = (
        *((name, _ARRAY) for name in ("panels", "scales", "sums", "bias")),
        *((name, _WHOLE) for name in ("outputs", "inputs", "format")),
    )


@final
class NormAddress(ctypes.Structure):
    """What layer normalization multiplies with, and adds."""

    _fields_ = (("gain", _ARRAY), ("bias", _ARRAY))


@final
class LayerAddress(ctypes.Structure):
    """A layer of a stack; an encoder's has no cross-attention."""

    _fields_ = (
        *((name, NormAddress) for name in ("self_norm", "cross_norm", "feed_norm")),
        *((name, MatrixAddress) for name in ("input", "output", "query", "key_value", "cross_output")),
        *((name, MatrixAddress) for name in ("inner", "outer", "average_inner", "average_outer", "average_gate")),
    )


@final
class StackAddress(ctypes.Structure):
    """An encoder or decoder."""

    _fields_ = (
        ("layers", _ARRAY),
        *((name, _WHOLE) for name in ("count", "vocabulary", "d_model", "heads", "d_k", "d_v", "d_ff")),
        ("embedding", _ARRAY),
        *((name, NormAddress) for name in ("first", "last")),
        *((name, _REAL) for name in ("embedding_scale", "epsilon", "scale")),
        *((name, ctypes.c_int32) for name in ("pre", "activation", "gated")),
    )


@final
class PastAddress(ctypes.Structure):
    """The keys and values of what a decoder has read, or the sums of average attention."""

    _fields_ = (
        *((name, _ARRAY) for name in ("keys", "values", "sums")),
        *((name, _WHOLE) for name in ("slots", "capacity")),
    )


@final
class MemoryAddress(ctypes.Structure):
    """The keys and values of a decoder's sources."""

    _fields_ = (
        *((name, _ARRAY) for name in ("keys", "values", "lengths")),
        *((name, _WHOLE) for name in ("slots", "columns")),
    )


@final
class StepAddress(ctypes.Structure):
    """A step of a decoder for all its rows; ``past`` and ``memory`` are where such structures lie."""

    _fields_ = (
        *((name, _WHOLE) for name in ("sentences", "beam")),
        ("positions", _ARRAY),
        ("longest", _WHOLE),
        *((name, _ARRAY) for name in ("tokens", "lengths", "slots", "ancestors", "past", "memory", "weights")),
        ("weight_columns", _WHOLE),
    )


@final
class ListsAddress(ctypes.Structure):
    """What each sentence may write, and in which columns of the scores."""

    _fields_ = (
        *((name, _ARRAY) for name in ("columns", "symbols", "lengths")),
        *((name, _WHOLE) for name in ("longest", "vocabulary")),
    )


@final
class RankingAddress(ctypes.Structure):
    """What ``rank`` reads, and where it leaves the best continuations."""

    _fields_ = (
        *((name, _ARRAY) for name in ("logits", "places", "so_far")),
        *((name, _WHOLE) for name in ("sentences", "beam", "width")),
        ("banned", _ARRAY),
        ("bans", _WHOLE),
        ("must_end", _ARRAY),
        *((name, _WHOLE) for name in ("end", "count")),
        *((name, _ARRAY) for name in ("which", "first", "choices")),
        ("kinds", _WHOLE),
        *((name, _ARRAY) for name in ("values", "indices")),
    )


@final
class Searched(ctypes.Structure):
    """A sentence of a search: what it was asked for, and how far it is."""

    _fields_ = (
        *((name, _WHOLE) for name in ("limit", "min_length", "n_best", "full_beam", "penalty")),
        ("alpha", _DOUBLE),
        *((name, _WHOLE) for name in ("length", "ended")),
    )


@final
class Ended(ctypes.Structure):
    """An output: how good it is, and where the hypothesis is that it ends."""

    _fields_ = (
        *((name, _DOUBLE) for name in ("score", "log_probability")),
        *((name, _WHOLE) for name in ("length", "place")),
    )


@final
class Written(ctypes.Structure):
    """The symbol that a hypothesis wrote in a round, and which hypothesis it continued."""

    _fields_ = (("place", ctypes.c_int32), ("symbol", ctypes.c_int32))


@final
class RoundAddress(ctypes.Structure):
    """What ``advance_beams`` reads and writes, and what it says of the round."""

    _fields_ = (
        ("logits", _ARRAY),
        ("width", _WHOLE),
        *((name, _ARRAY) for name in ("searched", "so_far", "ended", "written", "newest", "rows", "certain")),
        *((name, _WHOLE) for name in ("sentences", "beam", "most", "columns")),
        ("banned", _ARRAY),
        *((name, _WHOLE) for name in ("bans", "end")),
        *((name, _ARRAY) for name in ("which", "first", "choices")),
        *((name, _WHOLE) for name in ("kinds", "done", "moved", "not_a_number")),
    )


@final
class Pace(ctypes.Structure):
    """How many rounds and seconds ``search`` may go on, and how many rounds it has made."""

    _fields_ = (("rounds", _WHOLE), ("seconds", _DOUBLE), ("made", _WHOLE))


@final
class AddNormAddress(ctypes.Structure):
    """What ``add_norm`` reads and writes."""

    _fields_ = (
        *((name, _ARRAY) for name in ("x", "out", "sum", "y", "wide", "statistics", "gain", "bias")),
        *((name, _WHOLE) for name in ("rows", "d")),
        ("epsilon", _REAL),
    )


@final
class AddNormBackwardAddress(ctypes.Structure):
    """What ``add_norm_backward`` reads and writes."""

    _fields_ = (
        *((name, _ARRAY) for name in ("sum", "statistics", "gain", "of_sum", "of_y", "of_wide")),
        *((name, _ARRAY) for name in ("of_x", "of_out", "of_gain", "of_bias")),
        *((name, _WHOLE) for name in ("rows", "d")),
    )


@final
class SublayerAddress(ctypes.Structure):
    """A sub-layer of training: what it is made of, and its sizes."""

    _fields_ = (
        *((name, _ARRAY) for name in ("gain", "bias")),
        *((name, MapsAddress) for name in ("before", "memory", "after")),
        ("sequences", Sequences),
        *((name, Chance) for name in ("residual", "inside")),
        ("epsilon", _REAL),
        *((name, ctypes.c_int32) for name in ("activation", "gated")),
    )


@final
class SublayersAddress(ctypes.Structure):
    """Sub-layers one after the other, what they read, and where they leave it."""

    _fields_ = (
        ("all", _ARRAY),
        *((name, _WHOLE) for name in ("count", "rows", "d")),
        *((name, _ARRAY) for name in ("stream", "joined", "memory")),
        ("pending", Chance),
        *((name, _ARRAY) for name in ("kept", "next_stream", "next_joined")),
        *((name, ctypes.c_int32) for name in ("post", "tiles")),
    )


@final
class SublayersBackwardAddress(ctypes.Structure):
    """The gradients that their backward pass reads and writes."""

    _fields_ = tuple(
        (name, _ARRAY)
        for name in ("of_next_stream", "of_next_joined", "room", "of_stream", "of_joined", "of_memory", "of_parameters")
    )


@final
class CellsAddress(ctypes.Structure):
    """An LSTM over a ragged batch: what it reads and makes, and the gradients."""

    _fields_ = (
        *((name, _WHOLE) for name in ("batch", "hidden")),
        ("offsets", _ARRAY),
        ("backwards", _WHOLE),
        *((name, _ARRAY) for name in ("gates", "weight", "start", "start_memory")),
        *((name, _ARRAY) for name in ("states", "memories", "activated", "previous")),
        *((name, _ARRAY) for name in ("of_states", "of_gates", "of_start", "of_start_memory")),
    )


@final
class AdditiveAttentionAddress(ctypes.Structure):
    """An attention whose scores have a hidden layer: what it reads and makes, and the gradients."""

    _fields_ = (
        *((name, _WHOLE) for name in ("units", "memory", "columns")),
        *((name, _ARRAY) for name in ("begins", "ends", "keys", "values", "vector", "queries", "contexts", "weights")),
        *((name, _ARRAY) for name in ("of_contexts", "of_queries", "of_keys", "of_values", "of_vector")),
        ("sharpness", _REAL),
    )


# In interface.cpp's order.
STRUCTURES: Final[tuple[type[ctypes.Structure], ...]] = (
    *(Chance, Sequences, MapsAddress, MatrixAddress, NormAddress, LayerAddress, StackAddress),
    *(PastAddress, MemoryAddress, StepAddress, ListsAddress, RankingAddress),
    *(Searched, Ended, Written, RoundAddress, Pace, AddNormAddress, AddNormBackwardAddress),
    *(SublayerAddress, SublayersAddress, SublayersBackwardAddress, CellsAddress, AdditiveAttentionAddress),
)


def _by_reference(structure: type[ctypes.Structure]) -> Any:  # noqa: ANN401 - ctypes makes a type of its own for each
    return ctypes.POINTER(structure)


_CHANCE, _SEQUENCES, _MAPS = map(_by_reference, (Chance, Sequences, MapsAddress))
_MATRIX, _STACK, _STEP, _LISTS = map(_by_reference, (MatrixAddress, StackAddress, StepAddress, ListsAddress))
_RANKING, _ROUND, _PACE = map(_by_reference, (RankingAddress, RoundAddress, Pace))
_ADD_NORM, _BACKWARD = map(_by_reference, (AddNormAddress, AddNormBackwardAddress))
_SUBLAYERS, _SUBLAYERS_BACKWARD = map(_by_reference, (SublayersAddress, SublayersBackwardAddress))
_CELLS, _ADDITIVE = map(_by_reference, (CellsAddress, AdditiveAttentionAddress))

# What every kernel is called with; those of BOTH are there for float32 and for bfloat16.
ONE: Final[dict[str, Sequence[Any]]] = {
    "interface": (_ARRAY, _WHOLE),
    "multiply": (_ARRAY, _MATRIX, _ARRAY, _WHOLE, _WHOLE),
    "multiply_by_tiles": (_ARRAY, _MATRIX, _ARRAY, *[_WHOLE] * 3),
    "map_rows": (_ARRAY, _MAPS, _ARRAY, _WHOLE, _WHOLE),
    "map_rows_backward": (_ARRAY, _ARRAY, _MAPS, _ARRAY, _WHOLE, _WHOLE, _WHOLE),
    "allow_tiles": (),
    "map_rows_by_tiles": (_ARRAY, _MAPS, _ARRAY, _WHOLE, _WHOLE),
    "map_rows_backward_by_tiles": (_ARRAY, _ARRAY, _MAPS, _ARRAY, _WHOLE, _WHOLE, _WHOLE),
    "sublayers_room": (_SUBLAYERS, _ARRAY),
    "sublayers": (_SUBLAYERS,),
    "sublayers_backward": (_SUBLAYERS, _SUBLAYERS_BACKWARD),
    "use_cores": (_WHOLE,),
    "use_any_core": (),
    "rank": (_RANKING, _LISTS),
    "advance_beams": (_ROUND, _LISTS),
    "read_outputs": (_ROUND, _ARRAY, _WHOLE, _WHOLE, _WHOLE, _ARRAY),
    "activate": (_ARRAY, _ARRAY, *[_WHOLE] * 4),
    "activate_backward": (*[_ARRAY] * 3, *[_WHOLE] * 4),
    "additive_attention": (_ADDITIVE, _ARRAY, _WHOLE),
    "additive_attention_backward": (_ADDITIVE, _ARRAY, _WHOLE),
    "encode": (_STACK, _ARRAY, _WHOLE, _ARRAY, _ARRAY, _WHOLE, _ARRAY),
}
BOTH: Final[dict[str, Sequence[Any]]] = {
    "attention": (*[_ARRAY] * 5, _SEQUENCES, _CHANCE),
    "attention_backward": (*[_ARRAY] * 8, _SEQUENCES, _CHANCE),
    "add_norm": (_ADD_NORM, _CHANCE),
    "add_norm_backward": (_BACKWARD, _CHANCE),
    "drop": (_ARRAY, _ARRAY, _WHOLE, _WHOLE, _CHANCE),
    "cross_entropy": (_ARRAY, _ARRAY, _ARRAY, _ARRAY, _WHOLE, _WHOLE, _REAL),
    "remember": (_STACK, _ARRAY, _ARRAY, _WHOLE, _WHOLE, _ARRAY, _ARRAY),
    "step": (_STACK, _MATRIX, _STEP, _ARRAY),
    "search": (_STACK, _MATRIX, _STEP, _ROUND, _LISTS, _PACE),
    "lstm": (_CELLS,),
    "lstm_backward": (_CELLS,),
    "attending_lstm": (_CELLS, _ADDITIVE, _ARRAY),
    "attending_lstm_backward": (_CELLS, _ADDITIVE, _ARRAY),
    "conditional_lstm": (_CELLS, _CELLS, _ADDITIVE, _ARRAY),
    "conditional_lstm_backward": (_CELLS, _CELLS, _ADDITIVE, _ARRAY),
}
# activation.h's Activation; None: what is left as it is.
ACTIVATIONS: Final[dict[Activation | None, int]] = {None: 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
