// Structures that Python fills: addresses and sizes of what a kernel reads. native.py has the same.
#pragma once
#include <cstdint>

namespace transduce {

// Sentence b's queries are rows queries[b] to queries[b + 1]. Strides are of rows, in elements.
struct Sequences {
  std::int64_t batch, heads, d_k, d_v;
  const std::int64_t *queries, *keys;
  std::int64_t query_stride, key_stride, value_stride, output_stride;
  std::int32_t causal;
  float scale;
};

// Linear maps of the same rows in training, concatenated. Biases may be missing.
struct Maps {
  static constexpr int kMost = 3;
  const float* weights[kMost];
  const float* biases[kMost];
  float* of_weights[kMost];
  float* of_biases[kMost];
  std::int64_t outputs[kMost];
  std::int64_t inputs;

  std::int64_t width() const { return outputs[0] + outputs[1] + outputs[2]; }

  // Where what is of output o begins, `size` numbers for each output.
  template <typename T>
  T* of(T* const* parts, std::int64_t o, std::int64_t size) const {
    int map = 0;
    for (; o >= outputs[map]; ++map) o -= outputs[map];
    return parts[map] ? parts[map] + o * size : nullptr;
  }
};

// Sentence i: `lengths[i]` symbols in ascending order at symbols + i * longest, of a vocabulary of so many; symbol v's score is in
// column columns[v].
struct Lists {
  const std::int64_t *columns, *symbols, *lengths;
  std::int64_t longest, vocabulary;
};

}  // namespace transduce
