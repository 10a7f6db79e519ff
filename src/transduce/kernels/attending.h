// Attention of decoding: self-attention of a source, self-attention of hypotheses to their past, and cross-attention to the memory.
#pragma once
#include <utility>

#include "guard.h"
#include "reading.h"

namespace transduce {

// The softmax of n scores times `scale`; the padding up to `width`, a multiple of 16, becomes 0.
inline void softmax(float* scores, std::int64_t n, std::int64_t width, float scale) {
  const auto each = [=](auto body) {
    for (std::int64_t j = 0; j < width; j += 16) store_sixteen(body(load_sixteen(scores + j), n - j), scores + j);
  };
  Sixteen top = -INFINITY - Sixteen{}, total = {};
  each([&](Sixteen x, std::int64_t left) {
    x = x * scale;
    if (left < 16) x = choose(kPlaces < static_cast<std::int32_t>(left), x, -INFINITY - Sixteen{});
    top = larger(x, top);
    return x;
  });
  const float largest = largest_of(top);
  each([&](Sixteen x, std::int64_t left) {
    const Sixteen power = keep_first(exponential(x - largest), left);
    total += power;
    return power;
  });
  const float inverse = 1 / sum_sixteen(total);
  each([&](Sixteen x, std::int64_t) { return x * inverse; });
}

// Keys and values of a head: the keys in panels of sixteen, of shape (d_k, 16); and the
// values as (longest, wide). The padding behind `count` is zeros.
template <typename T>
void lay(const float* keys, const float* values, std::int64_t stride, std::int64_t count, std::int64_t longest, const Stack& s, T* to_keys,
         T* to_values) {
  for (std::int64_t j = 0; j < longest; j += 16) {
    T* to = to_keys + j * s.d_k;
    by_sixteens(s.d_k, [&](std::int64_t c, auto n) {
      Sixteen x[16] = {};
      for (std::int64_t i = 0; i < std::min<std::int64_t>(16, count - j); ++i) x[i] = load_first(keys + (j + i) * stride + c, n);
      transpose_sixteen(x);
      for (std::int64_t i = 0; i < n; ++i)
        for (int k = 0; k < 16; ++k) narrow(x[i][k], to[(c + i) * 16 + k]);
    });
  }
  for (std::int64_t j = 0; j < count; ++j) {
    const float* from = values + j * stride;
    T* to = to_values + j * s.wide();
#pragma omp simd
    for (std::int64_t c = 0; c < s.d_v; ++c) narrow(from[c], to[c]);
    std::fill(to + s.d_v, to + s.wide(), T{});
  }
  std::fill(to_values + count * s.wide(), to_values + longest * s.wide(), T{});
}

// A head's keys and values as `lay` leaves them.
template <typename T>
struct Head {
  const T *keys, *values;
  std::int64_t count, longest;
};

// Several queries over a head. Returns their weights, those of query i from i * longest on, which the thread's next call writes over. Every
// number is one sum in the order of the keys, whatever else is computed: blocks of values are for the cache alone.
template <typename T>
const float* look(const float* query, std::int64_t stride, std::int64_t queries, const Head<T>& head, const Stack& s, float* to,
                  std::int64_t to_stride) {
  constexpr std::int64_t kValues = 512;
  static thread_local Floats all_weights, all_wide;
  const auto [keys, values, count, longest] = head;
  float *weights = at_least(all_weights, queries * longest), *wide = at_least(all_wide, queries * s.wide());
  const std::int64_t together = queries > 4 ? 16 : longest;  // for many queries, sixteen keys stay in the cache
  for (std::int64_t j = 0; j < longest; j += together)
    product(query, stride, 1, keys + j * s.d_k, 16, 16 * s.d_k, weights + j, longest, queries, together, s.d_k, false);
  for (std::int64_t i = 0; i < queries; ++i) softmax(weights + i * longest, count, longest, s.scale);
  if (count == 0) std::fill_n(wide, queries * s.wide(), 0.0f);  // nothing to look at
  for (std::int64_t j = 0; j < count; j += kValues)
    product(weights + j, longest, 1, values + j * s.wide(), s.wide(), 16, wide, s.wide(), queries, s.wide(), std::min(kValues, count - j), j > 0);
  for (std::int64_t i = 0; i < queries; ++i) std::memcpy(to + i * to_stride, wide + i * s.wide(), s.d_v * sizeof(float));
  return weights;
}

// What the next sentence will read, of very much the first part, is fetched a few lines at a time while this one is computed: all at once,
// they would hold up what this one waits for.
class Ahead {
 public:
  Ahead() = default;
  template <typename T>
  Ahead(const T* keys, std::int64_t of_keys, const T* values, std::int64_t of_values) {
    at_ = reinterpret_cast<const char*>(keys), end_ = at_ + std::min<std::int64_t>(of_keys * sizeof(T), kMost);
    then_ = reinterpret_cast<const char*>(values), then_end_ = then_ + std::min<std::int64_t>(of_values * sizeof(T), kMost);
  }

  void fetch(std::int64_t bytes) {
    if (at_ >= end_) at_ = std::exchange(then_, nullptr), end_ = std::exchange(then_end_, nullptr);
    for (const char* to = std::min(at_ + bytes, end_); at_ < to; at_ += kLine) __builtin_prefetch(at_);
  }
  void fetch_all() { fetch(kMost), fetch(kMost); }

 private:
  static constexpr std::int64_t kLine = 64, kMost = 16 * 1024;
  const char *at_ = nullptr, *end_ = nullptr, *then_ = nullptr, *then_end_ = nullptr;
};

// c[h * sc + j] = sum over k of a[h * sa + k] b[h * sb + k * rb + j], for N heads h and sixteen j.
template <int N, typename T>
inline void product_of_heads(const float* a, std::int64_t sa, const T* b, std::int64_t sb, std::int64_t rb, float* c, std::int64_t sc,
                             std::int64_t count, Ahead& ahead) {
  Sixteen sum[N] = {};
  for (std::int64_t k = 0; k < count; ++k) {
    ahead.fetch(N * 16 * sizeof(T));
#pragma GCC unroll 4
    for (int h = 0; h < N; ++h) sum[h] += a[h * sa + k] * load_sixteen(b + h * sb + k * rb);
  }
#pragma GCC unroll 4
  for (int h = 0; h < N; ++h) store_sixteen(sum[h], c + h * sc);
}

// As `look` for one query of each of all heads, which begin at `first` and lie one behind the other. The numbers are the same: sums of
// several heads go on at the same time, as each addition waits for the one before it.
template <typename T>
const float* look_once(const float* query, const Head<T>& first, const Stack& s, float* to, Ahead& ahead) {
  static thread_local Floats all_weights, all_wide;
  const auto [keys, values, count, longest] = first;
  float *weights = at_least(all_weights, s.heads * longest), *wide = at_least(all_wide, s.heads * s.wide());
  const auto heads = [&](std::int64_t h, auto n) {
    for (std::int64_t j = 0; j < longest; j += 16)
      product_of_heads<n>(query + h * s.d_k, s.d_k, keys + (h * longest + j) * s.d_k, longest * s.d_k, 16, weights + h * longest + j, longest,
                          s.d_k, ahead);
    for (int i = 0; i < n; ++i) softmax(weights + (h + i) * longest, count, longest, s.scale);
    for (std::int64_t c = 0; c < s.wide(); c += 16)
      product_of_heads<n>(weights + h * longest, longest, values + h * longest * s.wide() + c, longest * s.wide(), s.wide(),
                          wide + h * s.wide() + c, s.wide(), count, ahead);
    for (int i = 0; i < n; ++i) std::memcpy(to + (h + i) * s.d_v, wide + (h + i) * s.wide(), s.d_v * sizeof(float));
  };
  std::int64_t h = 0;
  for (; h + 4 <= s.heads; h += 4) heads(h, std::integral_constant<int, 4>{});
  for (; h < s.heads; ++h) heads(h, std::integral_constant<int, 1>{});
  return weights;
}

// Self-attention of a source: (count, 2 keys + values) of W^Q, W^K and W^V become (count, values).
class Encoding {
 public:
  Encoding(const Stack& s, const float* projected, std::int64_t count, float* to)
      : s_(s), projected_(projected), count_(count), longest_(columns_of(count)), stride_(2 * s.keys() + s.values()), to_(to) {}

  void run() const {
    static thread_local Floats keys, values;
    const std::int64_t of_keys = longest_ * s_.d_k, of_values = longest_ * s_.wide();
    if (count_ < kLong) {
      at_least(keys, of_keys);
      at_least(values, of_values);
      for (std::int64_t h = 0; h < s_.heads; ++h) {
        lay_head(h, keys.data(), values.data());
        for (std::int64_t first = 0; first < count_; first += block()) look_from(h, first, keys.data(), values.data());
      }
      return;
    }
    // Heads and blocks of queries share nothing but the keys and values of all heads. One core does all where its caller has only one.
    float *all_keys = at_least(keys, s_.heads * of_keys), *all_values = at_least(values, s_.heads * of_values);
    const std::int64_t blocks = (count_ + block() - 1) / block();
    Caught caught;
#pragma omp parallel for schedule(static)
    for (std::int64_t h = 0; h < s_.heads; ++h) lay_head(h, all_keys + h * of_keys, all_values + h * of_values);
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t task = 0; task < s_.heads * blocks; ++task)
      caught([&] {
        const std::int64_t h = task / blocks;
        look_from(h, task % blocks * block(), all_keys + h * of_keys, all_values + h * of_values);
      });
    caught.rethrow();
  }

 private:
  static constexpr std::int64_t kLong = 256;  // symbols

  // How many queries are weighed together: their weights stay in the cache, and memory grows with the length and not with its square.
  std::int64_t block() const { return std::clamp<std::int64_t>(kWeights / longest_ / 12 * 12, 12, 48); }
  static constexpr std::int64_t kWeights = 128 * 1024;

  void lay_head(std::int64_t h, float* keys, float* values) const {
    const float* first = projected_ + s_.keys();
    lay(first + h * s_.d_k, first + s_.keys() + h * s_.d_v, stride_, count_, longest_, s_, keys, values);
  }

  void look_from(std::int64_t h, std::int64_t first, const float* keys, const float* values) const {
    look(projected_ + first * stride_ + h * s_.d_k, stride_, std::min(block(), count_ - first), Head<float>{keys, values, count_, longest_}, s_,
         to_ + first * s_.values() + h * s_.d_v, s_.values());
  }

  const Stack& s_;
  const float* projected_;
  std::int64_t count_, longest_, stride_;
  float* to_;
};

// sum over the columns of weight x value: N x 16 columns of the values stay in registers.
template <int N, typename Place>
void gather(const float* weights, std::int64_t count, Place value, float* to) {
  Sixteen sum[N] = {};
  for (std::int64_t t = 0; t < count; ++t) {
    const auto* v = value(t);
    const float w = weights[t];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) sum[i] += w * load_sixteen(v + 16 * i);
  }
  for (int i = 0; i < N; ++i) store_sixteen(sum[i], to + 16 * i);
}

template <typename T>
float dot(const float* a, const T* b, std::int64_t n) {
  Sixteen sum = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) sum += load_sixteen(a + i) * load_sixteen(b + i);
  float rest = 0;
  for (; i < n; ++i) rest += a[i] * widen(b[i]);
  return sum_sixteen(sum) + rest;
}

// The keys and values of a sentence in a layer: those of the beam's first row, and behind them the others'.
template <typename T>
struct PastOf {
  T *keys, *values;

  PastOf(const Stack& s, const Step& step, std::int64_t layer, std::int64_t i) {
    const std::int64_t first = (layer * step.past->slots + step.slots[i]) * step.beam * step.past->capacity;
    keys = static_cast<T*>(step.past->keys) + first * s.keys(), values = static_cast<T*>(step.past->values) + first * s.values();
  }

  // The first row's, of so many columns.
  Ahead ahead(const Stack& s, std::int64_t columns) const { return {keys, columns * s.keys(), values, columns * s.values()}; }
};

// Self-attention of the rows of sentence i: store their newest keys and values, then attend to all of theirs.
template <typename T>
void attend_past(const Stack& s, const Step& step, const Reading& reading, std::int64_t layer, std::int64_t i, const float* projected,
                 float* to) {
  static thread_local Floats scores;
  static thread_local std::vector<const T*> places;
  const std::int64_t position = step.lengths[i], count = position + 1, stride = 2 * s.keys() + s.values();
  if (reading.first[i] == reading.first[i + 1]) return;
  const auto [keys, values] = PastOf<T>(s, step, layer, i);
  Ahead ahead;
  if (const std::int64_t next = reading.next(i); next < step.sentences) ahead = PastOf<T>(s, step, layer, next).ahead(s, step.lengths[next]);
  const std::int64_t width = round_up(count, 16);
  float* w = at_least(scores, width);
  for (std::int64_t k = reading.first[i]; k < reading.first[i + 1]; ++k) {
    const float* p = projected + k * stride;
    const std::int64_t r = reading.rows[k], b = r - i * step.beam, place = b * step.past->capacity + position;
    step.ancestors[r * step.past->capacity + position] = static_cast<std::int32_t>(b);
    T *key = keys + place * s.keys(), *value = values + place * s.values();
#pragma omp simd
    for (std::int64_t c = 0; c < s.keys(); ++c) narrow(p[s.keys() + c], key[c]);
#pragma omp simd
    for (std::int64_t c = 0; c < s.values(); ++c) narrow(p[2 * s.keys() + c], value[c]);
  }
  // Where each row's keys and values lie, for all heads.
  const T** place = at_least(places, 2 * count * (reading.first[i + 1] - reading.first[i]));
  for (std::int64_t k = reading.first[i]; k < reading.first[i + 1]; ++k) {
    const std::int32_t* from = step.ancestors + reading.rows[k] * step.past->capacity;
    const T** row = place + 2 * count * (k - reading.first[i]);
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t column = from[t] * step.past->capacity + t;
      row[t] = keys + column * s.keys(), row[count + t] = values + column * s.values();
    }
  }
  for (std::int64_t h = 0; h < s.heads; ++h)
    for (std::int64_t k = reading.first[i]; k < reading.first[i + 1]; ++k) {
      const T* const* row = place + 2 * count * (k - reading.first[i]);
      const float* query = projected + k * stride + h * s.d_k;
      for (std::int64_t t = 0; t < count; ++t) {
        ahead.fetch(s.d_k * sizeof(T));
        w[t] = dot(query, row[t] + h * s.d_k, s.d_k);
      }
      softmax(w, count, width, s.scale);
      float* out = to + k * s.values() + h * s.d_v;
      std::int64_t c = 0;
      const auto value = [&](std::int64_t t) {
        ahead.fetch(s.d_v * sizeof(T));
        return row[count + t] + h * s.d_v + c;
      };
      for (; c + 64 <= s.d_v; c += 64) gather<4>(w, count, value, out + c);
      for (; c + 32 <= s.d_v; c += 32) gather<2>(w, count, value, out + c);
      for (; c + 16 <= s.d_v; c += 16) gather<1>(w, count, value, out + c);
      for (; c < s.d_v; ++c) {
        out[c] = 0;
        for (std::int64_t t = 0; t < count; ++t) out[c] += w[t] * widen(*value(t));
      }
    }
}

// What cross-attention asks of a sentence in a layer: its first head, behind which the others lie.
template <typename T>
struct MemoryOf {
  Head<T> first;

  MemoryOf(const Stack& s, const Step& step, std::int64_t layer, std::int64_t i) {
    const std::int64_t slot = step.slots[i], count = step.memory->lengths[slot];
    const std::int64_t place = (layer * step.memory->slots + slot) * s.heads * step.memory->columns;
    first = {static_cast<const T*>(step.memory->keys) + place * s.d_k, static_cast<const T*>(step.memory->values) + place * s.wide(), count,
             columns_of(count)};
  }

  Ahead ahead(const Stack& s) const {
    return {first.keys, s.heads * first.longest * s.d_k, first.values, s.heads * first.longest * s.wide()};
  }
};

// Cross-attention of the rows of sentence i, which share one memory.
template <typename T>
void attend_memory(const Stack& s, const Step& step, const Reading& reading, std::int64_t layer, std::int64_t i, const float* query,
                   float* to) {
  const std::int64_t begin = reading.first[i], rows = reading.first[i + 1] - begin;
  if (!rows) return;
  const MemoryOf<T> memory(s, step, layer, i);
  Ahead ahead;
  if (const std::int64_t next = reading.next(i); next < step.sentences) ahead = MemoryOf<T>(s, step, layer, next).ahead(s);
  const auto [all_keys, all_values, count, longest] = memory.first;
  const std::int64_t keys = longest * s.d_k, values = longest * s.wide();
  const auto tell = [&](std::int64_t k, std::int64_t h, const float* weights) {
    if (step.weights && layer == s.count - 1)
      std::memcpy(step.weights + (reading.rows[begin + k] * s.heads + h) * step.weight_columns, weights, count * sizeof(float));
  };
  query += begin * s.keys(), to += begin * s.values();
  if (rows == 1) {
    const float* weights = look_once(query, memory.first, s, to, ahead);
    for (std::int64_t h = 0; h < s.heads; ++h) tell(0, h, weights + h * longest);
    return;
  }
  ahead.fetch_all();
  for (std::int64_t h = 0; h < s.heads; ++h) {
    const Head<T> head{all_keys + h * keys, all_values + h * values, count, longest};
    const float* weights = look(query + h * s.d_k, s.keys(), rows, head, s, to + h * s.d_v, s.values());
    for (std::int64_t k = 0; k < rows; ++k) tell(k, h, weights + k * longest);
  }
}

}  // namespace transduce
