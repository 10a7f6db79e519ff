// The most probable continuations of each sentence, without the matrix of all log-probabilities. The plain formula is in
// ranking.py.
#include <algorithm>
#include <vector>

#include "guard.h"
#include "ranking.h"
#include "sixteen.h"

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
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += exponential(x[i] - top);
  return top + std::log(total);
}

// What a row may be continued with; a count of -1 says anything.
struct Choices {
  const std::int64_t* symbols = nullptr;
  std::int64_t count = -1;

  static Choices of(const Ranking& r, std::int64_t row) {
    if (!r.which || r.which[row] < 0) return {};
    const std::int64_t* first = r.first + r.which[row];
    return {r.choices + first[0], first[1] - first[0]};
  }
};

float* logits_of(const Ranking& r, std::int64_t row) { return r.logits + (r.places ? r.places[row] : row) * r.width; }

// Row `row` of a sentence's beam: all that it can be continued with, or one symbol alone.
void rank_row(float* logits, float so_far, std::int64_t symbols, const std::int64_t* banned, std::int64_t bans, std::int64_t only,
              const Choices& choices, std::int64_t row, const Best& best) {
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
  if (choices.count >= 0) {
    for (std::int64_t i = 0; i < choices.count; ++i)
      if (only < 0 || choices.symbols[i] == only) consider(choices.symbols[i]);
    return;
  }
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

// As `rank_row` for each of a sentence's rows, over its own symbols alone. Their scores are gathered first, so that a row's sum
// does not depend on what other sentences may write.
void rank_listed(const Ranking& r, const Lists& lists, std::int64_t sentence, const Best& best) {
  static thread_local std::vector<float> own;
  static thread_local std::vector<std::int64_t> from, own_banned, own_choices;
  const std::int64_t *list = lists.symbols + sentence * lists.longest, n = lists.lengths[sentence];
  require_index(n - 1, lists.longest);
  const auto find = [&](std::int64_t symbol) {
    const std::int64_t* at = std::lower_bound(list, list + n, symbol);
    return at < list + n && *at == symbol ? at - list : std::int64_t{-1};
  };
  const std::int64_t only = r.must_end[sentence] ? find(r.end) : -1;
  if (r.must_end[sentence] && only < 0) return;
  own_banned.clear();
  for (std::int64_t k = 0; k < r.bans; ++k)
    if (const std::int64_t at = find(r.banned[k]); at >= 0) own_banned.push_back(at);
  own.resize(n);
  from.resize(n);
  for (std::int64_t j = 0; j < n; ++j) {
    require_index(list[j], lists.vocabulary);
    from[j] = lists.columns[list[j]];
    require_index(from[j], r.width);
  }
  for (std::int64_t b = 0; b < r.beam; ++b) {
    if (r.so_far[sentence * r.beam + b] == -INFINITY) continue;
    const float* logits = logits_of(r, sentence * r.beam + b);
    for (std::int64_t j = 0; j < n; ++j) own[j] = logits[from[j]];
    Choices choices = Choices::of(r, sentence * r.beam + b);
    if (choices.count >= 0) {
      own_choices.clear();
      for (std::int64_t k = 0; k < choices.count; ++k)
        if (const std::int64_t at = find(choices.symbols[k]); at >= 0) own_choices.push_back(at);
      choices = {own_choices.data(), static_cast<std::int64_t>(own_choices.size())};
    }
    rank_row(own.data(), r.so_far[sentence * r.beam + b], n, own_banned.data(), own_banned.size(), only, choices, b, best);
  }
  for (std::int64_t k = 0; k < best.count; ++k) best.indices[k] = best.indices[k] / n * lists.vocabulary + list[best.indices[k] % n];
}

}  // namespace

void transduce::rank_all(const Ranking& r, const Lists* lists) {
  const std::int64_t symbols = lists ? lists->vocabulary : r.width;
  require_index(r.end, symbols);
  for (std::int64_t i = 0; i < r.bans; ++i) require_index(r.banned[i], symbols);
  if (r.places)
    for (std::int64_t i = 0; i < r.sentences * r.beam; ++i)
      if (r.so_far[i] > -INFINITY) require_index(r.places[i], r.sentences * r.beam);
  if (r.which) {
    for (std::int64_t i = 0; i < r.sentences * r.beam; ++i)
      if (r.which[i] != -1) require_index(r.which[i], r.kinds);
    for (std::int64_t i = 0; i < r.kinds; ++i) require_index(r.first[i], r.first[i + 1] + 1);
    for (std::int64_t i = 0; i < r.first[r.kinds]; ++i) require_index(r.choices[i], symbols);
  }
  for (std::int64_t i = 0; i < r.sentences; ++i) {
    const Best best{r.values + i * r.count, r.indices + i * r.count, r.count};
    std::fill(best.values, best.values + r.count, -INFINITY);
    std::fill(best.indices, best.indices + r.count, 0);
    if (lists) {
      rank_listed(r, *lists, i, best);
      continue;
    }
    for (std::int64_t b = i * r.beam; b < (i + 1) * r.beam; ++b)
      if (r.so_far[b] > -INFINITY)
        rank_row(logits_of(r, b), r.so_far[b], r.width, r.banned, r.bans, r.must_end[i] ? r.end : -1, Choices::of(r, b),
                 b - i * r.beam, best);
  }
}

// Where fewer than `count` continuations are possible, the last values are minus infinity.
TRANSDUCE_EXPORT rank(const Ranking* ranking, const Lists* lists) {
  return guarded([=] { rank_all(*ranking, lists); });
}
