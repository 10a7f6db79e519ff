// What both kernels of training's linear maps have in common.
#pragma once
#include <omp.h>

#include "activation.h"
#include "guard.h"
#include "structures.h"

namespace transduce {

struct Span {
  std::int64_t from, to;
};

// This thread's part of n, in whole units but for the end.
inline Span my_share(std::int64_t n, std::int64_t unit) {
  const std::int64_t threads = omp_get_num_threads(), me = omp_get_thread_num(), units = (n + unit - 1) / unit;
  return {std::min(n, units * me / threads * unit), std::min(n, units * (me + 1) / threads * unit)};
}

// The activations that are part of the products: their gradient can be told from their result.
inline void require_fused(Activation activation) {
  if (activation != kIdentity && activation != kRelu) throw std::invalid_argument("activation");
}

// The gradients where there are no rows. With `add` there is nothing to add.
inline void clear_gradients(const Maps& maps, bool add) {
  for (int map = 0; map < Maps::kMost && !add; ++map) {
    if (maps.of_weights[map]) std::fill_n(maps.of_weights[map], maps.outputs[map] * maps.inputs, 0.0f);
    if (maps.of_biases[map]) std::fill_n(maps.of_biases[map], maps.outputs[map], 0.0f);
  }
}

}  // namespace transduce
