// Linear maps of the same rows, side by side, in training.
#pragma once
#include <cstdint>

namespace transduce {

// Biases may be missing. linear_maps.py fills the same structure.
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

}  // namespace transduce
