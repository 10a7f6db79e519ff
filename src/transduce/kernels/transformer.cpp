// The Transformer in few, large operations: a whole encoder, the memory of a decoder, and a decoder's step for all its rows.
//
// The plain formula is models/transformer.py. Every row is computed by itself, in an order that does not depend on the
// others, and by the calling thread alone: threads that work on different batches never wait for each other. It knows neither
// Python nor torch: pointers and sizes come in, and the memory behind them is the caller's.
#include "products.h"

using namespace transduce;

namespace {

struct Norm {
  const float *gain, *bias;
};

// A decoder's layer; an encoder's has no query, key_value, cross_output and cross_norm. `input` is W^Q, W^K and W^V side by
// side, `key_value` W^K and W^V of the memory.
struct Layer {
  Norm self_norm, cross_norm, feed_norm;
  Matrix input, output, query, key_value, cross_output, inner, outer;
};

struct Stack {
  const Layer* layers;
  std::int64_t count, d_model, heads, d_k, d_v, d_ff;
  const float *embedding, *positions;
  Norm last;
  float embedding_scale, epsilon, scale;
  std::int32_t pre;

  std::int64_t keys() const { return heads * d_k; }
  std::int64_t values() const { return heads * d_v; }
  std::int64_t wide() const { return round_up(d_v, 16); }
};

// One symbol for each of `sentences` x `beam` rows. Sentence i has read lengths[i] symbols so far, and stands in slot slots[i]
// of the past and of the memory. In the past, row b of a slot's beam holds what row b of the sentence wrote, column by column;
// ancestors[r][t] is the row of the beam that holds row r's key of column t. Ahead of `capacity` columns is room.
struct Step {
  std::int64_t sentences, beam;
  const std::int64_t *tokens, *lengths, *slots;
  std::int32_t* ancestors;
  void *past_keys, *past_values;
  std::int64_t past_slots, capacity;
  const void *memory_keys, *memory_values;
  const std::int64_t* memory_lengths;
  std::int64_t memory_slots, longest;
  float* weights;
};

using Floats = std::vector<float>;

float* at_least(Floats& buffer, std::int64_t size) {
  if (static_cast<std::int64_t>(buffer.size()) < size) buffer.resize(size);
  return buffer.data();
}

void normalize(const float* x, const Norm& norm, float epsilon, std::int64_t d, float* to) {
  float total = 0, squares = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < d; ++i) total += x[i];
  const float mean = total / d;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < d; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float inverse = 1.0f / std::sqrt(squares / d + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < d; ++i) to[i] = (x[i] - mean) * inverse * norm.gain[i] + norm.bias[i];
}

// The softmax of n scores; what stands behind them, up to `width`, a multiple of 16, becomes 0.
inline void softmax(float* scores, std::int64_t n, std::int64_t width) {
  for (std::int64_t j = n; j < width; ++j) scores[j] = -INFINITY;
  const float top = largest(scores, width);
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t j = 0; j < width; ++j) {
    scores[j] = j < n ? exponential(scores[j] - top) : 0.0f;
    total += scores[j];
  }
  const float inverse = 1 / total;
#pragma omp simd
  for (std::int64_t j = 0; j < width; ++j) scores[j] *= inverse;
}

// The sums that run past the sub-layers, and what each of these is given of them.
class Stream {
 public:
  Stream(const Stack& stack, std::int64_t rows, float* x) : stack_(stack), rows_(rows), x_(x) {}

  // Each row is a symbol at a position.
  template <typename Position>
  void embed(const std::int64_t* ids, Position position) {
    const std::int64_t d = stack_.d_model;
    for (std::int64_t r = 0; r < rows_; ++r) {
      const float* e = stack_.embedding + ids[r] * d;
      float* to = x_ + r * d;
#pragma omp simd
      for (std::int64_t i = 0; i < d; ++i) to[i] = e[i] * stack_.embedding_scale;
      if (!stack_.positions) continue;
      const float* p = stack_.positions + position(r) * d;
#pragma omp simd
      for (std::int64_t i = 0; i < d; ++i) to[i] += p[i];
    }
  }

  // For the sub-layer whose norm that is: LayerNorm(x) where norms come first; else x, normalized by the sub-layer before.
  void prepare(const Norm& own, const Matrix& w, Rows& to) {
    const Norm* norm = stack_.pre ? &own : pending_;
    ready(norm, w, to);
    pending_ = &own;
  }

  // Behind the last sub-layer.
  void finish(const Matrix& w, Rows& to) { ready(stack_.pre ? &stack_.last : pending_, w, to); }

  void finish(float* to) {
    const std::int64_t d = stack_.d_model;
    for (std::int64_t r = 0; r < rows_; ++r)
      normalize(x_ + r * d, stack_.pre ? stack_.last : *pending_, stack_.epsilon, d, to + r * d);
  }

  // x += rows w.
  void add(const Matrix& w, const Rows& rows) { multiply(w, rows, rows_, Target{x_, stack_.d_model, false, true}); }

 private:
  void ready(const Norm* norm, const Matrix& w, Rows& to) {
    const std::int64_t d = stack_.d_model;
    to.resize(rows_, d, w.format);
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* x = x_ + r * d;
      if (!norm) {
        to.set(x, r, d, w.format);
        continue;
      }
      float* normalized = stack_.pre ? at_least(row_, d) : x;
      normalize(x, *norm, stack_.epsilon, d, normalized);
      to.set(normalized, r, d, w.format);
    }
  }

  const Stack& stack_;
  std::int64_t rows_;
  float* x_;
  const Norm* pending_ = nullptr;
  Floats row_;
};

void prepare_all(const float* x, std::int64_t rows, std::int64_t width, const Matrix& w, Rows& to) {
  to.resize(rows, width, w.format);
  for (std::int64_t r = 0; r < rows; ++r) to.set(x + r * width, r, width, w.format);
}

// Keys, transposed, and values of a head: (d_k, longest) and (longest, wide). Columns behind `count` are zeros.
template <typename T>
void lay(const float* keys, const float* values, std::int64_t stride, std::int64_t count, std::int64_t longest, const Stack& s, T* to_keys,
         T* to_values) {
  for (std::int64_t c = 0; c < s.d_k; ++c)
    for (std::int64_t j = 0; j < longest; ++j) narrow(j < count ? keys[j * stride + c] : 0.0f, to_keys[c * longest + j]);
  for (std::int64_t j = 0; j < longest; ++j)
    for (std::int64_t c = 0; c < s.wide(); ++c)
      narrow(j < count && c < s.d_v ? values[j * stride + c] : 0.0f, to_values[j * s.wide() + c]);
}

// Several queries over what `lay` has laid. `weights` of query i are left at weights + i * longest.
template <typename T>
void look(const float* query, std::int64_t stride, std::int64_t queries, const T* keys, const T* values, std::int64_t count,
          std::int64_t longest, const Stack& s, float* weights, float* wide, float* to, std::int64_t to_stride) {
  product(query, stride, 1, keys, longest, weights, longest, queries, longest, s.d_k);
  for (std::int64_t i = 0; i < queries; ++i) {
    float* w = weights + i * longest;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) w[j] *= s.scale;
    softmax(w, count, longest);
  }
  product(weights, longest, 1, values, s.wide(), wide, s.wide(), queries, s.wide(), count);
  for (std::int64_t i = 0; i < queries; ++i) std::memcpy(to + i * to_stride, wide + i * s.wide(), s.d_v * sizeof(float));
}

// Every symbol of a sentence looks at all of them.
void attend_sentence(const float* projected, std::int64_t count, const Stack& s, float* to) {
  static thread_local Floats keys, values, weights, wide;
  const std::int64_t longest = round_up(count, 16), stride = 2 * s.keys() + s.values();
  at_least(keys, longest * s.d_k);
  at_least(values, longest * s.wide());
  at_least(weights, count * longest);
  at_least(wide, count * s.wide());
  for (std::int64_t h = 0; h < s.heads; ++h) {
    const float* query = projected + h * s.d_k;
    lay(query + s.keys(), projected + 2 * s.keys() + h * s.d_v, stride, count, longest, s, keys.data(), values.data());
    look(query, stride, count, keys.data(), values.data(), count, longest, s, weights.data(), wide.data(), to + h * s.d_v, s.values());
  }
}

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

// Bring n numbers near, which will be read soon.
template <typename T>
void fetch(const T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 64 / sizeof(T)) __builtin_prefetch(x + i);
}

// The rows of sentence i remember their newest keys and values, and look at all of theirs.
template <typename T>
void attend_past(const Stack& s, const Step& step, std::int64_t layer, std::int64_t i, const float* projected, float* to) {
  static thread_local Floats scores;
  const std::int64_t position = step.lengths[i], count = position + 1, stride = 2 * s.keys() + s.values();
  const std::int64_t first = (layer * step.past_slots + step.slots[i]) * step.beam * s.heads * step.capacity;
  const std::int64_t key_head = step.capacity * s.d_k, value_head = step.capacity * s.d_v;
  T *keys = static_cast<T*>(step.past_keys) + first * s.d_k, *values = static_cast<T*>(step.past_values) + first * s.d_v;
  const std::int64_t width = round_up(count, 16);
  float* w = at_least(scores, width);
  for (std::int64_t b = 0; b < step.beam; ++b) {
    const float* p = projected + (i * step.beam + b) * stride;
    step.ancestors[(i * step.beam + b) * step.capacity + position] = static_cast<std::int32_t>(b);
    for (std::int64_t h = 0; h < s.heads; ++h) {
      T *key = keys + (b * s.heads + h) * key_head + position * s.d_k, *value = values + (b * s.heads + h) * value_head + position * s.d_v;
      const float *k = p + s.keys() + h * s.d_k, *v = p + 2 * s.keys() + h * s.d_v;
#pragma omp simd
      for (std::int64_t c = 0; c < s.d_k; ++c) narrow(k[c], key[c]);
#pragma omp simd
      for (std::int64_t c = 0; c < s.d_v; ++c) narrow(v[c], value[c]);
    }
  }
  for (std::int64_t h = 0; h < s.heads; ++h)
    for (std::int64_t b = 0; b < step.beam; ++b) {
      const std::int64_t r = i * step.beam + b;
      const std::int32_t* from = step.ancestors + r * step.capacity;
      const float* query = projected + r * stride + h * s.d_k;
      if (h + 1 < s.heads)
        for (std::int64_t t = 0; t < count; ++t) {
          fetch(keys + (from[t] * s.heads + h + 1) * key_head + t * s.d_k, s.d_k);
          fetch(values + (from[t] * s.heads + h + 1) * value_head + t * s.d_v, s.d_v);
        }
      for (std::int64_t t = 0; t < count; ++t)
        w[t] = s.scale * dot(query, keys + (from[t] * s.heads + h) * key_head + t * s.d_k, s.d_k);
      softmax(w, count, width);
      float* out = to + r * s.values() + h * s.d_v;
      std::int64_t c = 0;
      const auto value = [&](std::int64_t t) { return values + (from[t] * s.heads + h) * value_head + t * s.d_v + c; };
      for (; c + 64 <= s.d_v; c += 64) gather<4>(w, count, value, out + c);
      for (; c + 16 <= s.d_v; c += 16) gather<1>(w, count, value, out + c);
      for (; c < s.d_v; ++c) {
        out[c] = 0;
        for (std::int64_t t = 0; t < count; ++t) out[c] += w[t] * widen(*value(t));
      }
    }
}

// The rows of sentence i look at the one memory of theirs.
template <typename T>
void attend_memory(const Stack& s, const Step& step, std::int64_t layer, std::int64_t i, const float* query, float* to) {
  static thread_local Floats weights, wide;
  at_least(weights, step.beam * step.longest);
  at_least(wide, step.beam * s.wide());
  const std::int64_t slot = step.slots[i], count = step.memory_lengths[slot];
  const std::int64_t first = (layer * step.memory_slots + slot) * s.heads, keys = step.longest * s.d_k, values = step.longest * s.wide();
  const T *all_keys = static_cast<const T*>(step.memory_keys) + first * keys, *all_values = static_cast<const T*>(step.memory_values) + first * values;
  for (std::int64_t h = 0; h < s.heads; ++h) {
    look(query + i * step.beam * s.keys() + h * s.d_k, s.keys(), step.beam, all_keys + h * keys, all_values + h * values, count, step.longest, s,
         weights.data(), wide.data(), to + i * step.beam * s.values() + h * s.d_v, s.values());
    if (step.weights && layer == s.count - 1)
      for (std::int64_t b = 0; b < step.beam; ++b)
        std::memcpy(step.weights + ((i * step.beam + b) * s.heads + h) * step.longest, weights.data() + b * step.longest,
                    step.longest * sizeof(float));
  }
}

void feed_forward(const Stack& s, const Layer& layer, Stream& x, std::int64_t rows, Rows& ready, Floats& buffer) {
  x.prepare(layer.feed_norm, layer.inner, ready);
  float* inner = at_least(buffer, rows * s.d_ff);
  multiply(layer.inner, ready, rows, Target{inner, s.d_ff, true, false});
  prepare_all(inner, rows, s.d_ff, layer.outer, ready);
  x.add(layer.outer, ready);
}

void encode_some(const Stack& s, const std::int64_t* ids, const std::int64_t* offsets, std::int64_t sentences, float* hidden) {
  static thread_local Floats sums, projected, gathered;
  static thread_local Rows ready;
  const std::int64_t first = offsets[0], rows = offsets[sentences] - first, width = 2 * s.keys() + s.values();
  std::vector<std::int64_t> columns;
  for (std::int64_t i = 0; i < sentences; ++i)
    for (std::int64_t j = 0; j < offsets[i + 1] - offsets[i]; ++j) columns.push_back(j);
  Stream x(s, rows, at_least(sums, rows * s.d_model));
  x.embed(ids, [&](std::int64_t r) { return columns[r]; });
  at_least(projected, rows * width);
  at_least(gathered, rows * s.values());
  for (std::int64_t l = 0; l < s.count; ++l) {
    const Layer& layer = s.layers[l];
    x.prepare(layer.self_norm, layer.input, ready);
    multiply(layer.input, ready, rows, Target{projected.data(), width, false, false});
    const float* in = projected.data();
    float* out = gathered.data();
    for (std::int64_t i = 0; i < sentences; ++i)
      attend_sentence(in + (offsets[i] - first) * width, offsets[i + 1] - offsets[i], s, out + (offsets[i] - first) * s.values());
    prepare_all(out, rows, s.values(), layer.output, ready);
    x.add(layer.output, ready);
    feed_forward(s, layer, x, rows, ready, projected);
    at_least(projected, rows * width);
  }
  x.finish(hidden);
}

// The projected keys and values of a decoder's layers, for each sentence and head as `lay` lays them.
template <typename T>
void remember(const Stack& s, const float* hidden, const std::int64_t* offsets, std::int64_t sentences, std::int64_t longest, T* keys,
              T* values) {
  static thread_local Floats projected;
  static thread_local Rows ready;
  const std::int64_t rows = offsets[sentences], width = s.keys() + s.values();
  at_least(projected, rows * width);
  for (std::int64_t l = 0; l < s.count; ++l) {
    const Matrix& w = s.layers[l].key_value;
    if (l == 0) prepare_all(hidden, rows, s.d_model, w, ready);
    multiply(w, ready, rows, Target{projected.data(), width, false, false});
    for (std::int64_t i = 0; i < sentences; ++i)
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const float* p = projected.data() + offsets[i] * width;
        const std::int64_t place = ((l * sentences + i) * s.heads + h) * longest;
        lay(p + h * s.d_k, p + s.keys() + h * s.d_v, width, offsets[i + 1] - offsets[i], longest, s, keys + place * s.d_k,
            values + place * s.wide());
      }
  }
}

template <typename T>
void step(const Stack& s, const Matrix& projection, const Step& step, float* logits) {
  static thread_local Floats sums, projected, gathered;
  static thread_local Rows ready;
  const std::int64_t rows = step.sentences * step.beam, width = 2 * s.keys() + s.values();
  Stream x(s, rows, at_least(sums, rows * s.d_model));
  x.embed(step.tokens, [&](std::int64_t r) { return step.lengths[r / step.beam]; });
  float* in = at_least(projected, rows * std::max(width, s.d_ff));
  float* out = at_least(gathered, rows * s.values());
  for (std::int64_t l = 0; l < s.count; ++l) {
    const Layer& layer = s.layers[l];
    x.prepare(layer.self_norm, layer.input, ready);
    multiply(layer.input, ready, rows, Target{in, width, false, false});
    for (std::int64_t i = 0; i < step.sentences; ++i) attend_past<T>(s, step, l, i, in, out);
    prepare_all(out, rows, s.values(), layer.output, ready);
    x.add(layer.output, ready);
    x.prepare(layer.cross_norm, layer.query, ready);
    multiply(layer.query, ready, rows, Target{in, s.keys(), false, false});
    for (std::int64_t i = 0; i < step.sentences; ++i) attend_memory<T>(s, step, l, i, in, out);
    prepare_all(out, rows, s.values(), layer.cross_output, ready);
    x.add(layer.cross_output, ready);
    feed_forward(s, layer, x, rows, ready, projected);
    in = projected.data();
  }
  x.finish(projection, ready);
  multiply(projection, ready, rows, Target{logits, projection.outputs, false, false});
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// The last hidden states of sequences laid end to end; so many symbols at a time that what is made of them stays near.
EXPORT void encode(const Stack* stack, const std::int64_t* ids, const std::int64_t* offsets, std::int64_t sentences, float* hidden) {
  constexpr std::int64_t kTokens = 256;
  for (std::int64_t i = 0; i < sentences;) {
    std::int64_t end = i + 1;
    while (end < sentences && offsets[end] - offsets[i] < kTokens) ++end;
    encode_some(*stack, ids + offsets[i], offsets + i, end - i, hidden + offsets[i] * stack->d_model);
    i = end;
  }
}

#define BOTH(T, name)                                                                                                        \
  EXPORT void remember_##name(const Stack* stack, const float* hidden, const std::int64_t* offsets, std::int64_t sentences,  \
                              std::int64_t longest, T* keys, T* values) {                                                    \
    remember(*stack, hidden, offsets, sentences, longest, keys, values);                                                     \
  }                                                                                                                          \
  EXPORT void step_##name(const Stack* stack, const Matrix* projection, const Step* one, float* logits) {                    \
    step<T>(*stack, *projection, *one, logits);                                                                              \
  }

BOTH(float, float32)
BOTH(Bfloat16, bfloat16)
