// Average attention of decoding (Zhang, Xiong and Su 2018): the mean of what a hypothesis has read, and the gate behind it. The plain formula
// is layers/average_attention.py.
#pragma once
#include "reading.h"

namespace transduce {

// The mean of all that each row of sentence i has read, up to its newest vector: those of row k are at k * stride. Sums are added up symbol
// after symbol, so that they are the same whatever else is computed.
inline void average_past(const Stack& s, const Step& step, const Reading& reading, std::int64_t layer, std::int64_t i, const float* newest,
                         float* mean, std::int64_t stride) {
  const Past& past = *step.past;
  const std::int64_t position = step.lengths[i], first = i * step.beam, d = s.d_model;
  float* sums = past.sums + (layer * past.slots + step.slots[i]) * step.beam * Past::kSums * d;
  const auto sum = [&](std::int64_t b, std::int64_t column) { return sums + (b * Past::kSums + column % Past::kSums) * d; };
  const float count = static_cast<float>(position + 1);
  for (std::int64_t k = reading.first[i]; k < reading.first[i + 1]; ++k) {
    const std::int64_t r = reading.rows[k], b = r - first;
    std::int32_t* ancestors = step.ancestors + r * past.capacity;
    const float *x = newest + k * stride, *before = position ? sum(ancestors[position - 1], position - 1) : nullptr;
    float *total = sum(b, position), *to = mean + k * stride;
    ancestors[position] = static_cast<std::int32_t>(b);
#pragma omp simd
    for (std::int64_t c = 0; c < d; ++c) {
      total[c] = before ? before[c] + x[c] : x[c];
      to[c] = total[c] / count;
    }
  }
}

// gathered = sigmoid(i) read + sigmoid(f) gathered, the gates i and f lying side by side.
inline void gate_gathered(const float* gates, const float* read, float* gathered, std::int64_t d) {
  by_sixteens(d, [&](std::int64_t c, auto n) {
    const Sixteen kept = sigmoid(load_first(gates + c, n)) * load_first(read + c, n);
    store_first(kept + sigmoid(load_first(gates + d + c, n)) * load_first(gathered + c, n), n, gathered + c);
  });
}

}  // namespace transduce
