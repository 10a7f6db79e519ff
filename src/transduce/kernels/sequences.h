// Sequences of a training step's attention, laid end to end.
#pragma once
#include <cstdint>

namespace transduce {

// Sentence b's queries are rows queries[b] to queries[b + 1]. Strides are of rows, in elements. native.py fills the same structure.
struct Sequences {
  std::int64_t batch, heads, d_k, d_v;
  const std::int64_t *queries, *keys;
  std::int64_t query_stride, key_stride, value_stride, output_stride;
  std::int32_t causal;
  float scale;
};

}  // namespace transduce
