// The Transformer in few, large operations: a whole encoder, the memory of a decoder, and a decoder's step for all its rows.
//
// The plain formula is models/transformer.py. Every row is computed by itself, in an order that does not depend on the
// others, and by the calling thread alone: threads that work on different batches never wait for each other. It knows neither
// Python nor torch: pointers and sizes come in, and the memory behind them is the caller's.
#include "attending.h"
#include "averaging.h"

using namespace transduce;

namespace {

void normalize(const float* x, const Norm& norm, float epsilon, std::int64_t d, float* to) {
  Sixteen total = {}, squares = {};
  by_sixteens(d, [&](std::int64_t i, auto n) { total += load_first(x + i, n); });
  const float mean = sum_sixteen(total) / d;
  by_sixteens(d, [&](std::int64_t i, auto n) {
    const Sixteen away = keep_first(load_first(x + i, n) - mean, n);
    squares += away * away;
  });
  const float inverse = 1.0f / std::sqrt(sum_sixteen(squares) / d + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < d; ++i) to[i] = (x[i] - mean) * inverse * norm.gain[i] + norm.bias[i];
}

// The residual stream, and what each sub-layer is given of it.
class Stream {
 public:
  Stream(const Stack& stack, std::int64_t rows, float* x) : stack_(stack), rows_(rows), x_(x) {}

  // Each row is a symbol at a position.
  template <typename Position>
  void embed(const std::int64_t* ids, const Positions& positions, Position position) {
    const std::int64_t d = stack_.d_model;
    for (std::int64_t r = 0; r < rows_; ++r) {
      require_index(ids[r], stack_.vocabulary);
      const float* e = stack_.embedding + ids[r] * d;
      float* to = x_ + r * d;
#pragma omp simd
      for (std::int64_t i = 0; i < d; ++i) to[i] = e[i] * stack_.embedding_scale;
      if (positions.vectors) {
        require_index(position(r), positions.count);
        const float* p = positions.vectors + position(r) * d;
#pragma omp simd
        for (std::int64_t i = 0; i < d; ++i) to[i] += p[i];
      }
      if (stack_.first.gain) normalize(to, stack_.first, stack_.epsilon, d, to);
    }
  }

  // For the sub-layer whose norm that is: LayerNorm(x) where norms come first; else x, normalized by the sub-layer before.
  void prepare(const Norm& own, const Matrix& w, Rows& to) { ready(norm_before(own), w, to); }

  // The same as it is, `stride` numbers a row.
  void prepare(const Norm& own, float* to, std::int64_t stride) {
    each_normalized(norm_before(own), [&](std::int64_t r, const float* x) { std::copy_n(x, stack_.d_model, to + r * stride); });
  }

  // Behind the last sub-layer.
  void finish(const Matrix& w, Rows& to) { ready(due(), w, to); }

  void finish(float* to) {
    const std::int64_t d = stack_.d_model;
    const Norm* norm = due();
    for (std::int64_t r = 0; r < rows_; ++r) {
      if (norm)
        normalize(x_ + r * d, *norm, stack_.epsilon, d, to + r * d);
      else
        std::copy_n(x_ + r * d, d, to + r * d);
    }
  }

  // x += rows w.
  void add(const Matrix& w, const Rows& rows) { multiply(w, rows, rows_, Target{x_, stack_.d_model, kIdentity, true}); }

  // x += rows, `stride` numbers each.
  void add(const float* rows, std::int64_t stride) {
    for (std::int64_t r = 0; r < rows_; ++r)
#pragma omp simd
      for (std::int64_t i = 0; i < stack_.d_model; ++i) x_[r * stack_.d_model + i] += rows[r * stride + i];
  }

 private:
  // What is normalized by before the sub-layer whose norm that is, if by anything.
  const Norm* norm_before(const Norm& own) {
    const Norm* norm = stack_.pre ? &own : pending_;
    pending_ = &own;
    return norm;
  }

  // The norm that is left to do behind the last sub-layer, if there is one.
  const Norm* due() {
    const Norm *pending = stack_.pre ? nullptr : pending_, *last = stack_.last.gain ? &stack_.last : nullptr;
    if (!pending || !last) return last ? last : pending;
    const std::int64_t d = stack_.d_model;
    for (std::int64_t r = 0; r < rows_; ++r) normalize(x_ + r * d, *pending, stack_.epsilon, d, x_ + r * d);
    return last;
  }

  void ready(const Norm* norm, const Matrix& w, Rows& to) {
    const std::int64_t d = stack_.d_model;
    to.resize(rows_, d, w.format);
    each_normalized(norm, [&](std::int64_t r, const float* x) { to.set(x, r, d, w.format); });
  }

  // Calls `use` for every row with what a sub-layer is given of it.
  template <typename Use>
  void each_normalized(const Norm* norm, Use use) {
    const std::int64_t d = stack_.d_model;
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* x = x_ + r * d;
      float* to = norm && stack_.pre ? at_least(row_, d) : x;
      if (norm) normalize(x, *norm, stack_.epsilon, d, to);
      use(r, to);
    }
  }

  const Stack& stack_;
  std::int64_t rows_;
  float* x_;
  const Norm* pending_ = nullptr;
  Floats row_;
};

// Rows of w's inputs, each `stride` behind the one before.
void prepare_all(const float* x, std::int64_t rows, std::int64_t stride, const Matrix& w, Rows& to) {
  to.resize(rows, w.inputs, w.format);
  for (std::int64_t r = 0; r < rows; ++r) to.set(x + r * stride, r, w.inputs, w.format);
}

// The hidden layer of a feed-forward network: from what `inner` multiplies to what `outer` does.
void activate_hidden(const Stack& s, const Matrix& inner, const Matrix& outer, std::int64_t rows, Rows& ready, Floats& buffer) {
  const Activated activated = s.activated();
  const std::int64_t width = activated.inputs();
  float* hidden = at_least(buffer, rows * width);
  multiply(inner, ready, rows, Target{hidden, width, s.gated ? kIdentity : activated.kind});
  // In place: a row's results end before the next row's inputs begin.
  if (s.gated)
    for (std::int64_t r = 0; r < rows; ++r) activated.forward(hidden + r * width, hidden + r * s.d_ff);
  prepare_all(hidden, rows, s.d_ff, outer, ready);
}

void feed_forward(const Stack& s, const Layer& layer, Stream& x, std::int64_t rows, Rows& ready, Floats& buffer) {
  x.prepare(layer.feed_norm, layer.inner, ready);
  activate_hidden(s, layer.inner, layer.outer, rows, ready, buffer);
  x.add(layer.outer, ready);
}

// The sub-layer of average attention.
void average(const Stack& s, const Step& step, const Reading& reading, std::int64_t l, Stream& x, Rows& ready, Floats& buffer) {
  static thread_local Floats pairs;
  const Layer& layer = s.layers[l];
  const std::int64_t rows = reading.count(), d = s.d_model, stride = 2 * d;
  // What a row reads and what it gathers lie side by side, as the gate asks for them.
  float *read = at_least(pairs, rows * stride), *gathered = read + d;
  x.prepare(layer.self_norm, read, stride);
  for (std::int64_t i = 0; i < step.sentences; ++i) average_past(s, step, reading, l, i, read, gathered, stride);
  if (layer.average_inner.panels) {
    prepare_all(gathered, rows, stride, layer.average_inner, ready);
    activate_hidden(s, layer.average_inner, layer.average_outer, rows, ready, buffer);
    if (!layer.average_gate.panels) return x.add(layer.average_outer, ready);
    multiply(layer.average_outer, ready, rows, Target{gathered, stride});
  }
  if (layer.average_gate.panels) {
    float* gates = at_least(buffer, rows * stride);
    prepare_all(read, rows, stride, layer.average_gate, ready);
    multiply(layer.average_gate, ready, rows, Target{gates, stride});
    for (std::int64_t r = 0; r < rows; ++r) gate_gathered(gates + r * stride, read + r * stride, gathered + r * stride, d);
  }
  x.add(gathered, stride);
}

void encode_some(const Stack& s, const Positions& positions, const std::int64_t* ids, const std::int64_t* offsets, std::int64_t sentences,
                 float* hidden) {
  static thread_local Floats sums, projected, gathered;
  static thread_local Rows ready;
  const std::int64_t first = offsets[0], rows = offsets[sentences] - first, width = 2 * s.keys() + s.values();
  std::vector<std::int64_t> columns;
  for (std::int64_t i = 0; i < sentences; ++i)
    for (std::int64_t j = 0; j < offsets[i + 1] - offsets[i]; ++j) columns.push_back(j);
  Stream x(s, rows, at_least(sums, rows * s.d_model));
  x.embed(ids, positions, [&](std::int64_t r) { return columns[r]; });
  at_least(projected, rows * width);
  at_least(gathered, rows * s.values());
  for (std::int64_t l = 0; l < s.count; ++l) {
    const Layer& layer = s.layers[l];
    x.prepare(layer.self_norm, layer.input, ready);
    multiply(layer.input, ready, rows, Target{projected.data(), width});
    const float* in = projected.data();
    float* out = gathered.data();
    for (std::int64_t i = 0; i < sentences; ++i)
      Encoding(s, in + (offsets[i] - first) * width, offsets[i + 1] - offsets[i], out + (offsets[i] - first) * s.values()).run();
    prepare_all(out, rows, s.values(), layer.output, ready);
    x.add(layer.output, ready);
    feed_forward(s, layer, x, rows, ready, projected);
    at_least(projected, rows * width);
  }
  x.finish(hidden);
}

// The projected keys and values of a decoder's layers, for each sentence and head in the layout of `lay`. Each slot has
// `columns` columns.
template <typename T>
void remember(const Stack& s, const float* hidden, const std::int64_t* offsets, std::int64_t sentences, std::int64_t columns, T* keys,
              T* values) {
  static thread_local Floats projected;
  static thread_local Rows ready;
  const std::int64_t rows = offsets[sentences], width = s.keys() + s.values();
  for (std::int64_t i = 0; i < sentences; ++i) require_index(columns_of(offsets[i + 1] - offsets[i]), columns + 1);
  at_least(projected, rows * width);
  for (std::int64_t l = 0; l < s.count; ++l) {
    const Matrix& w = s.layers[l].key_value;
    if (l == 0) prepare_all(hidden, rows, s.d_model, w, ready);
    multiply(w, ready, rows, Target{projected.data(), width});
    for (std::int64_t i = 0; i < sentences; ++i) {
      const float* p = projected.data() + offsets[i] * width;
      const std::int64_t count = offsets[i + 1] - offsets[i], longest = columns_of(count);
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::int64_t place = (l * sentences + i) * s.heads * columns + h * longest;
        lay(p + h * s.d_k, p + s.keys() + h * s.d_v, width, count, longest, s, keys + place * s.d_k, values + place * s.wide());
      }
    }
  }
}

// Every index is inside its buffer.
void check(const Step& step) {
  for (std::int64_t i = 0; i < step.sentences; ++i) {
    require_index(step.lengths[i], step.past->capacity);
    require_index(step.slots[i], std::min(step.past->slots, step.memory->slots));
    const std::int64_t memory = step.memory->lengths[step.slots[i]];
    require_index(columns_of(memory), step.memory->columns + 1);
    if (step.weights) require_index(memory, step.weight_columns + 1);
  }
}

// Each row's scores to its place, the last one's first; those of rows that read nothing are 0.
void spread(const Reading& reading, std::int64_t rows, std::int64_t width, float* scores) {
  std::int64_t k = reading.count();
  for (std::int64_t r = rows; r-- > k;) {
    if (k && reading.rows[k - 1] == r)
      std::copy_n(scores + --k * width, width, scores + r * width);
    else
      std::fill_n(scores + r * width, width, 0.0f);
  }
}

}  // namespace

template <typename T>
const Reading& transduce::read(const Stack& s, const Matrix& projection, const Step& step, float* logits) {
  static thread_local Floats sums, projected, gathered;
  static thread_local Rows ready;
  static thread_local Reading reading;
  check(step);
  reading.of(step);
  const std::int64_t rows = reading.count(), width = 2 * s.keys() + s.values();
  if (!rows) return reading;
  Stream x(s, rows, at_least(sums, rows * s.d_model));
  x.embed(reading.symbols.data(), step.positions, [&](std::int64_t k) { return step.lengths[reading.rows[k] / step.beam]; });
  float* in = at_least(projected, rows * std::max(width, s.d_ff));
  float* out = at_least(gathered, rows * s.values());
  for (std::int64_t l = 0; l < s.count; ++l) {
    const Layer& layer = s.layers[l];
    if (layer.averages()) {
      average(s, step, reading, l, x, ready, projected);
      in = projected.data();
    } else {
      x.prepare(layer.self_norm, layer.input, ready);
      multiply(layer.input, ready, rows, Target{in, width});
      for (std::int64_t i = 0; i < step.sentences; ++i) attend_past<T>(s, step, reading, l, i, in, out);
      prepare_all(out, rows, s.values(), layer.output, ready);
      x.add(layer.output, ready);
    }
    x.prepare(layer.cross_norm, layer.query, ready);
    multiply(layer.query, ready, rows, Target{in, s.keys()});
    for (std::int64_t i = 0; i < step.sentences; ++i) attend_memory<T>(s, step, reading, l, i, in, out);
    prepare_all(out, rows, s.values(), layer.cross_output, ready);
    x.add(layer.cross_output, ready);
    feed_forward(s, layer, x, rows, ready, projected);
    in = projected.data();
  }
  x.finish(projection, ready);
  multiply(projection, ready, rows, Target{logits, projection.outputs});
  return reading;
}

template const Reading& transduce::read<float>(const Stack&, const Matrix&, const Step&, float*);
template const Reading& transduce::read<Bfloat16>(const Stack&, const Matrix&, const Step&, float*);

// The last hidden states of a ragged batch; so many symbols at a time that their activations stay in the cache.
TRANSDUCE_EXPORT encode(const Stack* stack, const float* positions, std::int64_t longest, const std::int64_t* ids,
                        const std::int64_t* offsets, std::int64_t sentences, float* hidden) {
  constexpr std::int64_t kTokens = 256;
  return guarded([=] {
    for (std::int64_t i = 0; i < sentences;) {
      std::int64_t end = i + 1;
      while (end < sentences && offsets[end] - offsets[i] < kTokens) ++end;
      encode_some(*stack, Positions{positions, longest}, ids + offsets[i], offsets + i, end - i, hidden + offsets[i] * stack->d_model);
      i = end;
    }
  });
}

#define BOTH(T, name)                                                                                                              \
  TRANSDUCE_EXPORT remember_##name(const Stack* stack, const float* hidden, const std::int64_t* offsets, std::int64_t sentences,   \
                                   std::int64_t columns, T* keys, T* values) {                                                     \
    return guarded([=] { remember(*stack, hidden, offsets, sentences, columns, keys, values); });                                  \
  }                                                                                                                                \
  TRANSDUCE_EXPORT step_##name(const Stack* stack, const Matrix* projection, const Step* one, float* logits) {                     \
    return guarded([=] {                                                                                                           \
      const Reading& reading = read<T>(*stack, *projection, *one, logits);                                                         \
      spread(reading, one->sentences * one->beam, projection->outputs, logits);                                                    \
    });                                                                                                                            \
  }

BOTH(float, float32)
BOTH(Bfloat16, bfloat16)
