// Attention over a ragged batch, for a training step: one head of one sentence at a time, in the cache. The plain formula is in
// ragged_attention.py.
//
// A column of sixteen lanes is sixteen queries: each key has a row of their scores, so that softmax and dropout go on in all
// queries at once, and nothing is summed across lanes.
#include <omp.h>

#include <vector>

#include "dropping.h"
#include "guard.h"
#include "structures.h"
#include "training.h"
#include "words.h"

using namespace transduce;

namespace {

// Some rows of a head.
template <typename T>
struct Part {
  T* x;
  std::int64_t stride, rows, width;

  // Prefetch into the second-level cache: in the first it would evict what is in use.
  void fetch() const {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < width; c += 64 / sizeof(T)) __builtin_prefetch(x + r * stride + c, 0, 2);
  }

  void store(std::int64_t r, std::int64_t c, Sixteen numbers) const { store_first(numbers, width - c, x + r * stride + c); }
};

// One head of one sentence.
struct Task {
  const Sequences& s;
  std::int64_t head, first_query, queries, first_key, keys, width;

  Task(const Sequences& s, std::int64_t number) : s(s) {
    const std::int64_t b = number / s.heads;
    head = number % s.heads;
    first_query = s.queries[b];
    queries = s.queries[b + 1] - first_query;
    first_key = s.keys[b];
    keys = s.keys[b + 1] - first_key;
    width = round_up(queries, 16);
  }

  template <typename T>
  Part<T> query_part(T* x) const {
    return part(x, first_query, s.query_stride, queries, s.d_k);
  }
  template <typename T>
  Part<T> key_part(T* x) const {
    return part(x, first_key, s.key_stride, keys, s.d_k);
  }
  template <typename T>
  Part<T> value_part(T* x) const {
    return part(x, first_key, s.value_stride, keys, s.d_v);
  }
  template <typename T>
  Part<T> output_part(T* x) const {
    return part(x, first_query, s.output_stride, queries, s.d_v);
  }
  // A row has the heads concatenated.
  template <typename T>
  Part<T> part(T* x, std::int64_t first, std::int64_t stride, std::int64_t rows, std::int64_t width) const {
    return {x + first * stride + head * width, stride, rows, width};
  }

  // The index of the first query in what is kept for the backward pass, head by head.
  std::int64_t kept() const { return head * s.queries[s.batch] + first_query; }

  // Which of sixteen queries may look at key j: with fewer queries than keys, the first keys are the past.
  Numbers sees(std::int64_t first, std::int64_t j) const {
    return s.causal ? kPlaces + static_cast<std::int32_t>(keys - queries + first - j) >= 0 : Numbers{} == 0;
  }

  // The streams of sixteen queries: every head has 2^20 draws of a query's seed (as dropout.py shares them out).
  Dropout::Streams streams(const Dropout& dropout, std::int64_t first) const {
    return {dropout, first_query + first, queries - first, static_cast<std::uint64_t>(head) << 20};
  }
};

// A matrix's rows as words: read where they lie if they are of whole words, else from a copy.
template <typename T>
struct Rows {
  const char* first;
  std::int64_t bytes;
  std::vector<T> copy;

  void read(const Part<const T>& x) {
    if (x.width % kGroup<T> == 0) {
      first = reinterpret_cast<const char*>(x.x);
      bytes = x.stride * sizeof(T);
      return;
    }
    const std::int64_t width = words_of<T>(x.width) * kGroup<T>;
    copy.assign(x.rows * width, T{});
    for (std::int64_t r = 0; r < x.rows; ++r) std::copy_n(x.x + r * x.stride, x.width, copy.data() + r * width);
    first = reinterpret_cast<const char*>(copy.data());
    bytes = width * sizeof(T);
  }
};

// to[j][i]: what row j of x and row i of those that lie transposed have in common, times the scale. It is rounded here, so that both passes
// see the same scores: where one subtracted the largest from a product, in one rounding, weights would differ by as much as scores are large.
template <typename T>
void compare(const Part<const T>& x, Rows<T>& rows, const std::uint32_t* transposed, std::int64_t width, float scale, float* to) {
  rows.read(x);
  product_of_words<T>(rows.first, rows.bytes, 4, transposed, width, x.rows, width, words_of<T>(x.width),
                      [&](std::int64_t j, std::int64_t i, Sixteen sums) { store_sixteen(sums * scale, to + j * width + i); });
}

// Of each query the largest score, and one by the sum of all scores' exponentials under it: what the backward pass is left.
template <typename T>
struct Statistics {
  T *largest, *inverse;
};

// One behind the other, for every head and query.
template <typename T>
Statistics<T> split(T* statistics, const Sequences& s) {
  return {statistics, statistics + s.heads * s.queries[s.batch]};
}

// o = dropout(softmax(scale q k^T)) v.
template <typename T>
struct Forward {
  const T *q, *k, *v;
  T* o;
  Statistics<float> statistics;
  const Dropout& dropout;
  std::vector<std::uint32_t> query = {}, value = {}, weight = {};
  std::vector<float> score = {};
  Rows<T> keys = {};

  void fetch(const Task& t) const { t.query_part(q).fetch(), t.key_part(k).fetch(), t.value_part(v).fetch(); }

  void run(const Task& t) {
    const std::int64_t wide = round_up(t.s.d_v, 16), groups = words_of<T>(t.keys);
    const auto queries = t.query_part(q);
    const auto values = t.value_part(v);
    const auto output = t.output_part(o);
    at_least(query, words_of<T>(t.s.d_k) * t.width);
    at_least(value, groups * wide);
    at_least(weight, groups * t.width);
    at_least(score, t.keys * t.width);
    transpose_words(queries.x, queries.stride, t.queries, t.s.d_k, t.width, query.data());
    compare(t.key_part(k), keys, query.data(), t.width, t.s.scale, score.data());
    for (std::int64_t i = 0; i < t.queries; i += 16) weigh(t, i);
    join_rows(values.x, values.stride, t.keys, t.s.d_v, wide, value.data());
    product_of_words<T>(reinterpret_cast<const char*>(weight.data()), 4, 4 * t.width, value.data(), wide, t.queries, wide, groups,
                        [&](std::int64_t i, std::int64_t c, Sixteen sums) { output.store(i, c, sums); });
  }

  // The weights of sixteen queries, from the i-th on.
  void weigh(const Task& t, std::int64_t i) {
    Sixteen top = -INFINITY - Sixteen{}, total = {};
    float* scores = score.data() + i;
    for (std::int64_t j = 0; j < t.keys; ++j) {
      const Sixteen x = load_sixteen(scores + j * t.width);
      const Sixteen seen = choose(t.sees(i, j), x, -INFINITY - Sixteen{});
      store_sixteen(seen, scores + j * t.width);
      top = larger(seen, top);
    }
    for (std::int64_t j = 0; j < t.keys; ++j) {
      const Sixteen x = exponential(load_sixteen(scores + j * t.width) - top);
      const Sixteen seen = choose(t.sees(i, j), x, Sixteen{});
      store_sixteen(seen, scores + j * t.width);
      total += seen;
    }
    const Sixteen one_by = 1.0f / total;
    store_first(top, t.queries - i, statistics.largest + t.kept() + i);
    store_first(one_by, t.queries - i, statistics.inverse + t.kept() + i);
    const auto streams = t.streams(dropout, i);
    for (std::int64_t j = 0; j < t.keys; j += 4) {
      Sixteen kept[4];
      dropout.draw_across(streams, j / 4, kept);
      for (std::int64_t n = 0; n < 4 && j + n < t.keys; n += kGroup<T>) {
        Sixteen weights[kGroup<T>] = {};
        for (std::int64_t m = 0; m < kGroup<T> && j + n + m < t.keys; ++m)
          weights[m] = load_sixteen(scores + (j + n + m) * t.width) * (kept[n + m] * one_by);
        store_words(join_words(weights), weight.data() + (j + n) / kGroup<T> * t.width + i);
      }
    }
  }
};

// The gradients of q, k and v, from that of o.
template <typename T>
struct Backward {
  const T *q, *k, *v, *of_o;
  Statistics<const float> statistics;
  T *dq, *dk, *dv;
  const Dropout& dropout;
  std::vector<std::uint32_t> query = {}, gradient = {}, joined = {}, slope = {};
  std::vector<float> score = {}, product = {};
  std::vector<T> weight = {}, steep = {};
  Rows<T> keys = {}, values = {};

  void fetch(const Task& t) const {
    t.query_part(q).fetch(), t.key_part(k).fetch(), t.value_part(v).fetch(), t.output_part(of_o).fetch();
    t.query_part(dq).fetch(), t.key_part(dk).fetch(), t.value_part(dv).fetch();
  }

  void run(const Task& t) {
    const auto query_part = t.query_part(q), gradient_part = t.output_part(of_o);
    const auto key_part = t.key_part(k), value_part = t.value_part(v);
    const std::int64_t wide = round_up(std::max(t.s.d_k, t.s.d_v), 16);
    at_least(query, words_of<T>(t.s.d_k) * t.width);
    at_least(gradient, words_of<T>(t.s.d_v) * t.width);
    at_least(joined, words_of<T>(std::max(t.queries, t.keys)) * wide);
    at_least(slope, words_of<T>(t.keys) * t.width);
    at_least(score, t.keys * t.width);
    at_least(product, t.keys * t.width);
    at_least(weight, t.keys * t.width);
    at_least(steep, t.keys * t.width);
    transpose_words(query_part.x, query_part.stride, t.queries, t.s.d_k, t.width, query.data());
    transpose_words(gradient_part.x, gradient_part.stride, t.queries, t.s.d_v, t.width, gradient.data());
    compare(key_part, keys, query.data(), t.width, t.s.scale, score.data());
    compare(value_part, values, gradient.data(), t.width, 1, product.data());
    for (std::int64_t i = 0; i < t.queries; i += 16) find_slopes(t, i);
    gather(key_part, slope.data(), 4, 4 * t.width, wide, t.query_part(dq));
    gather(query_part, steep.data(), t.width * sizeof(T), 4, wide, t.key_part(dk));
    gather(gradient_part, weight.data(), t.width * sizeof(T), 4, wide, t.value_part(dv));
  }

  // to[r] = sum over the rows of x, each times the weight that row r gives to it.
  void gather(const Part<const T>& x, const void* weights, std::int64_t row_bytes, std::int64_t group_bytes, std::int64_t wide,
              const Part<T>& to) {
    join_rows(x.x, x.stride, x.rows, x.width, wide, joined.data());
    product_of_words<T>(static_cast<const char*>(weights), row_bytes, group_bytes, joined.data(), wide, to.rows, round_up(x.width, 16),
                        words_of<T>(x.rows), [&](std::int64_t r, std::int64_t c, Sixteen sums) { to.store(r, c, sums); });
  }

  // The weights of sixteen queries from the i-th on, less what was dropped, and the gradients of their scores, twice: as rows
  // of a key's queries, and as words of a query's keys.
  void find_slopes(const Task& t, std::int64_t i) {
    const Sixteen top = load_first(statistics.largest + t.kept() + i, t.queries - i);
    const Sixteen one_by = load_first(statistics.inverse + t.kept() + i, t.queries - i);
    float *scores = score.data() + i, *products = product.data() + i;
    const auto streams = t.streams(dropout, i);
    Sixteen inner = {};
    for (std::int64_t j = 0; j < t.keys; j += 4) {
      Sixteen kept[4];
      dropout.draw_across(streams, j / 4, kept);
      for (std::int64_t n = 0; n < 4 && j + n < t.keys; ++n) {
        const std::int64_t at = (j + n) * t.width;
        const Sixteen x = exponential(load_sixteen(scores + at) - top) * one_by;
        const Sixteen whole = choose(t.sees(i, j + n), x, Sixteen{}), stays = whole * kept[n];
        const Sixteen pulled = stays * load_sixteen(products + at);
        store_sixteen(whole, scores + at);
        store_sixteen(pulled, products + at);
        store_sixteen(stays, weight.data() + at + i);
        inner += pulled;
      }
    }
    for (std::int64_t j = 0; j < t.keys; j += kGroup<T>) {
      Sixteen pair[kGroup<T>] = {};
      for (std::int64_t n = 0; n < kGroup<T> && j + n < t.keys; ++n) {
        const std::int64_t at = (j + n) * t.width;
        pair[n] = (load_sixteen(products + at) - load_sixteen(scores + at) * inner) * t.s.scale;
        store_sixteen(pair[n], steep.data() + at + i);
      }
      store_words(join_words(pair), slope.data() + j / kGroup<T> * t.width + i);
    }
  }
};

// Every head of every sentence, while the next one is prefetched; each thread has a copy of `way`.
template <typename Way>
void run_all(const Way& way, const Sequences& s) {
  const std::int64_t tasks = s.batch * s.heads;
  std::vector<Way> own(omp_get_max_threads(), way);
  Caught caught;
#pragma omp parallel for schedule(dynamic, 8)
  for (std::int64_t number = 0; number < tasks; ++number)
    caught([&] {
      Way& mine = own[omp_get_thread_num()];
      if (number + 1 < tasks) mine.fetch(Task(s, number + 1));
      mine.run(Task(s, number));
    });
  caught.rethrow();
}

}  // namespace

#define BOTH(T, name)                                                                                                            \
  TRANSDUCE_EXPORT attention_##name(const T* q, const T* k, const T* v, T* o, float* statistics, const Sequences* sequences,        \
                                    const Dropout* dropout) {                                                                       \
    return guarded([=] { run_all(Forward<T>{q, k, v, o, split(statistics, *sequences), *dropout}, *sequences); });                  \
  }                                                                                                                                 \
  TRANSDUCE_EXPORT attention_backward_##name(const T* q, const T* k, const T* v, const T* of_o, const float* statistics, T* dq,     \
                                             T* dk, T* dv, const Sequences* sequences, const Dropout* dropout) {                    \
    return guarded([=] {                                                                                                            \
      run_all(Backward<T>{q, k, v, of_o, split(statistics, *sequences), dq, dk, dv, *dropout}, *sequences);                         \
    });                                                                                                                             \
  }

BOTH(float, float32)
BOTH(Bfloat16, bfloat16)
