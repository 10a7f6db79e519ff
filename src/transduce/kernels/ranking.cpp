// The most probable continuations of each sentence, without the matrix of all log-probabilities. The plain formula is in
// ranking.py.
#include <algorithm>
#include <vector>

#include "guard.h"
#include "sixteen.h"
#include "structures.h"

using namespace transduce;

namespace {

struct Best {
  float* values;
  std::int64_t* indices;
  std::int64_t count;

  // Sorted; what came first stays first among equals.
  void insert(float value, std::int64_t index) const {
    std::int64_t i = count - 1;
    for (; i > 0 && values[i - 1] < value; --i) {
      values[i] = values[i - 1];
      indices[i] = indices[i - 1];
    }
    values[i] = value;
    indices[i] = index;
  }
};

// log sum e^x; NaN where one of them is NaN.
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

// As `rank_row` for each of a sentence's rows, over its own symbols alone. Their scores are gathered first, so that a
// row's sum does not depend on what other sentences may write.
void rank_listed(const float* logits, const float* so_far, std::int64_t beam, std::int64_t width, const std::int64_t* banned,
                 std::int64_t bans, bool must_end, std::int64_t end, const Lists& lists, std::int64_t sentence, const Best& best) {
  static thread_local std::vector<float> own;
  static thread_local std::vector<std::int64_t> from, own_banned;
  const std::int64_t *list = lists.symbols + sentence * lists.longest, n = lists.lengths[sentence];
  const auto find = [&](std::int64_t symbol) {
    const std::int64_t* at = std::lower_bound(list, list + n, symbol);
    return at < list + n && *at == symbol ? at - list : std::int64_t{-1};
  };
  const std::int64_t only = must_end ? find(end) : -1;
  if (must_end && only < 0) return;
  own_banned.clear();
  for (std::int64_t k = 0; k < bans; ++k)
    if (const std::int64_t at = find(banned[k]); at >= 0) own_banned.push_back(at);
  own.resize(n);
  from.resize(n);
  for (std::int64_t j = 0; j < n; ++j) {
    require_index(list[j], lists.vocabulary);
    from[j] = lists.columns[list[j]];
    require_index(from[j], width);
  }
  for (std::int64_t b = 0; b < beam; ++b) {
    for (std::int64_t j = 0; j < n; ++j) own[j] = logits[b * width + from[j]];
    rank_row(own.data(), so_far[b], n, own_banned.data(), own_banned.size(), only, b, best);
  }
  for (std::int64_t k = 0; k < best.count; ++k) best.indices[k] = best.indices[k] / n * lists.vocabulary + list[best.indices[k] % n];
}

// The sentences, their rows and the columns of these, and what no row is continued with.
struct Sizes {
  std::int64_t sentences, beam, width, count;
};

void rank_all(float* logits, const float* so_far, const Sizes& sizes, const std::int64_t* banned, std::int64_t bans, const bool* must_end,
              std::int64_t end, const Lists* lists, float* values, std::int64_t* indices) {
  const std::int64_t symbols = lists ? lists->vocabulary : sizes.width;
  require_index(end, symbols);
  for (std::int64_t i = 0; i < bans; ++i) require_index(banned[i], symbols);
  for (std::int64_t i = 0; i < sizes.sentences; ++i) {
    const Best best{values + i * sizes.count, indices + i * sizes.count, sizes.count};
    std::fill(best.values, best.values + sizes.count, -INFINITY);
    std::fill(best.indices, best.indices + sizes.count, 0);
    float* rows = logits + i * sizes.beam * sizes.width;
    const float* before = so_far + i * sizes.beam;
    if (lists) {
      rank_listed(rows, before, sizes.beam, sizes.width, banned, bans, must_end[i], end, *lists, i, best);
      continue;
    }
    for (std::int64_t b = 0; b < sizes.beam; ++b)
      rank_row(rows + b * sizes.width, before[b], sizes.width, banned, bans, must_end[i] ? end : -1, b, best);
  }
}

}  // namespace

// `must_end` says of each sentence whether nothing but the end symbol may follow. Uses the logits up. Where fewer than `count`
// continuations are possible, the last values are minus infinity. Without `lists`, the logits are those of all symbols.
TRANSDUCE_EXPORT rank(float* logits, const float* so_far, std::int64_t sentences, std::int64_t beam, std::int64_t width,
                      const std::int64_t* banned, std::int64_t bans, const bool* must_end, std::int64_t end, const Lists* lists,
                      std::int64_t count, float* values, std::int64_t* indices) {
  return guarded([=] {
    rank_all(logits, so_far, Sizes{sentences, beam, width, count}, banned, bans, must_end, end, lists, values, indices);
  });
}
