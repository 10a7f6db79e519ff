// The most probable continuations of each sentence, without the matrix of all log-probabilities. The plain formula is in
// ranking.py.
#include <vector>

#include "sixteen.h"

using namespace transduce;

namespace {

struct Best {
  float* values;
  std::int64_t* places;
  std::int64_t count;

  // Sorted; what came first stays first among equals.
  void insert(float value, std::int64_t place) const {
    std::int64_t i = count - 1;
    for (; i > 0 && values[i - 1] < value; --i) {
      values[i] = values[i - 1];
      places[i] = places[i - 1];
    }
    values[i] = value;
    places[i] = place;
  }
};

// log sum e^x; no number where one of them is none.
float log_sum(const float* x, std::int64_t n) {
  const float top = largest(x, n);
  float total = 0, check = 0;
#pragma omp simd reduction(+ : total, check)
  for (std::int64_t i = 0; i < n; ++i) {
    total += exponential(x[i] - top);
    check += x[i] * 0.0f;
  }
  return top + std::log(total) + check;
}

// Row `row` of a sentence's beam: all that it can be continued with, or one symbol alone.
void rank_row(float* logits, float so_far, std::int64_t symbols, const std::int64_t* banned, std::int64_t bans, std::int64_t only,
              std::int64_t row, const Best& best) {
  constexpr std::int64_t kBlock = 64;
  const float total = log_sum(logits, symbols), &least = best.values[best.count - 1];
  if (std::isnan(total)) {
    std::fill(best.values, best.values + best.count, NAN);
    return;
  }
  for (std::int64_t i = 0; i < bans; ++i) logits[banned[i]] = -INFINITY;
  const auto consider = [&](std::int64_t i) {
    const float value = (logits[i] - total) + so_far;
    if (value > least) best.insert(value, row * symbols + i);
  };
  if (only >= 0) return consider(only);
  std::int64_t i = 0;
  for (; i + kBlock <= symbols; i += kBlock) {
    Sixteen top = load_sixteen(logits + i);
    for (std::int64_t j = 16; j < kBlock; j += 16) top = larger(load_sixteen(logits + i + j), top);
    if (any_larger((top - total) + so_far, least))
      for (std::int64_t j = i; j < i + kBlock; ++j) consider(j);
  }
  for (; i < symbols; ++i) consider(i);
}

}  // namespace

// `must_end` says of each sentence whether nothing but the end symbol may follow. Uses the logits up. Where fewer than `count`
// continuations are possible, the last values are minus infinity.
extern "C" __attribute__((visibility("default"))) void rank(float* logits, const float* so_far, std::int64_t sentences,
                                                            std::int64_t beam, std::int64_t symbols, const std::int64_t* banned,
                                                            std::int64_t bans, const bool* must_end, std::int64_t end,
                                                            std::int64_t count, float* values, std::int64_t* places) {
  for (std::int64_t i = 0; i < sentences; ++i) {
    const Best best{values + i * count, places + i * count, count};
    std::fill(best.values, best.values + count, -INFINITY);
    std::fill(best.places, best.places + count, 0);
    for (std::int64_t b = 0; b < beam; ++b) {
      const std::int64_t row = i * beam + b;
      rank_row(logits + row * symbols, so_far[row], symbols, banned, bans, must_end[i] ? end : -1, b, best);
    }
  }
}
