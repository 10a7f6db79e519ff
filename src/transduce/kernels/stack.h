// An encoder or a decoder as its kernels read it. transformer.py fills the same structures.
#pragma once
#include <vector>

#include "products.h"
#include "structures.h"

namespace transduce {

struct Norm {
  const float *gain, *bias;
};

// A decoder's layer; an encoder's has no query, key_value, cross_output and cross_norm. `input` is W^Q, W^K and W^V side by
// side, `key_value` W^K and W^V of the memory, `inner` a gated network's gate and inner map. In the place of input and output, average
// attention has its network's maps and its gate, the map of [y; g]; each of the two may be missing.
struct Layer {
  Norm self_norm, cross_norm, feed_norm;
  Matrix input, output, query, key_value, cross_output, inner, outer, average_inner, average_outer, average_gate;

  bool averages() const { return !input.panels; }
};

struct Stack {
  const Layer* layers;
  std::int64_t count, vocabulary, d_model, heads, d_k, d_v, d_ff;
  const float* embedding;
  Norm first, last;  // of the embeddings; behind the last layer, and its own norm; either may be missing
  float embedding_scale, epsilon, scale;
  std::int32_t pre, activation, gated;

  std::int64_t keys() const { return heads * d_k; }
  std::int64_t values() const { return heads * d_v; }
  std::int64_t wide() const { return round_up(d_v, 16); }
  Activated activated() const { return {static_cast<Activation>(activation), gated != 0, d_ff}; }
};

// The vectors of the first `count` positions; none where positions have none.
struct Positions {
  const float* vectors;
  std::int64_t count;
};

// What a decoder has read, in `slots` of `capacity` columns: row b of a slot's beam holds what row b of its sentence wrote. That is keys and
// values; or for average attention the sums of what has been read up to a column, of which no more than kSums are kept, by turns: the sum
// before is read while the newest is written.
struct Past {
  static constexpr std::int64_t kSums = 2;
  void *keys, *values;
  float* sums;
  std::int64_t slots, capacity;
};

// What cross-attention asks of the sources, in `slots` of `columns`; a sentence takes the first `columns_of` its length.
struct Memory {
  const void *keys, *values;
  const std::int64_t* lengths;
  std::int64_t slots, columns;
};

// One symbol, or kReadsNothing, for each of `sentences` x `beam` rows. Sentence i has read lengths[i] symbols
// so far, and is in slot slots[i] of the past and of the memory. ancestors[r][t] is the row of the beam that holds row r's key, or sum, of column t:
// no key moves when hypotheses change their places. A beam of 2 that has read three symbols, the second hypothesis of the second column having
// given rise to both that go on:
//
//     column            0   1   2                           0   1   2
//     keys of row 0     a   b   d        ancestors of row 0   0   1   0     reads a, c, d
//     keys of row 1     -   c   e        ancestors of row 1   0   1   1     reads a, c, e
struct Step {
  std::int64_t sentences, beam;
  Positions positions;
  const std::int64_t* tokens;
  std::int64_t* lengths;
  const std::int64_t* slots;
  std::int32_t* ancestors;
  const Past* past;
  const Memory* memory;
  float* weights;
  std::int64_t weight_columns;
};

// A source is padded to whole vectors.
inline std::int64_t columns_of(std::int64_t length) { return round_up(length, 16); }

using Floats = std::vector<float>;

}  // namespace transduce
