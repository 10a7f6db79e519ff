// A layer of training as its kernels read it. sublayers.py fills the same structures.
#pragma once
#include "dropping.h"
#include "structures.h"

namespace transduce {

// A sub-layer, its norm and its residual connection, whose dropout is `residual`; `inside` is that of the attention's weights or
// behind the activation. An attention's maps are those of its queries (and of keys and values, where it has no memory), of the
// memory's keys and values, and of what was gathered. A feed-forward network has no heads: its maps are the inner ones, none, and the
// outer one.
struct Sublayer {
  const float *gain, *bias;
  Maps before, memory, after;
  Sequences sequences;  // of the strides nothing is read: they follow from the maps
  Dropout residual, inside;
  float epsilon;
  std::int32_t activation, gated;
};

// So many sub-layers, one after the other. `joined` is what goes along with the residual stream: with `post`, the stream as products
// read it, else the output of the sub-layer before, which is still to be added, less what `pending` drops; it may be missing then.
struct Sublayers {
  const Sublayer* all;
  std::int64_t count, rows, d;
  const float* stream;
  const Bfloat16 *joined, *memory;
  Dropout pending;
  char* kept;  // for the backward pass
  float* next_stream;
  Bfloat16* next_joined;
  std::int32_t post, tiles;
};

// What the backward pass is given and writes beside: `of_parameters` are the gradients of each sub-layer's gain, bias, and its maps'
// weights and biases, as far as there are such, one after the other.
struct SublayersBackward {
  const float* of_next_stream;
  const Bfloat16* of_next_joined;  // either may be missing, not both
  char* room;
  float* of_stream;
  Bfloat16 *of_joined, *of_memory;
  float* of_parameters;
};

}  // namespace transduce
