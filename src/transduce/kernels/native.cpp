// The element-wise and attention kernels of a training step on CPUs: one pass over memory where PyTorch's operations take
// several. The plain formula of each stands in the Python file of its name. It knows neither Python nor torch: pointers and
// sizes come in, and the memory behind them is the caller's.
#include <vector>

#include "sixteen.h"

using namespace transduce;

namespace {

// Eight draws of a seed's stream, from number `first` on: 64 random bits each for four neighbours (splitmix64; seeds.py draws
// the same).
using Words = std::uint64_t __attribute__((vector_size(64)));

inline Words random_words(std::uint64_t seed, std::uint64_t first) {
  Words z = seed + (first + Words{0, 1, 2, 3, 4, 5, 6, 7}) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Which elements stay, and what they are multiplied with: `kept` of 65,536 levels stay. The draws are a pure function of
// the row's seed and the column, so that the backward pass draws them again and nothing has to be stored.
struct Dropout {
  const std::uint64_t* seeds;
  std::int32_t kept;
  float scale;

  bool active() const { return kept < 65536; }

  // How many columns are drawn at a time: `factor` must have room for a multiple of them.
  static constexpr std::int64_t kColumns = 32;

  // factor[i] = 0 or scale for the columns of a row, whose draws begin behind the `before` first of its seed's; left alone
  // where nothing is dropped.
  void draw(float* factor, std::int64_t n, std::int64_t row, std::uint64_t before) const {
    using Shorts = std::int16_t __attribute__((vector_size(32)));
    using Numbers = std::int32_t __attribute__((vector_size(64)));
    if (!active()) return;
    const std::uint64_t seed = seeds[row];
    const std::int32_t below = kept - 32768;
    for (std::int64_t i = 0; i < n; i += kColumns) {
      const Words words = random_words(seed, before + i / 4);
      Shorts bits[2];
      std::memcpy(bits, &words, sizeof bits);
      for (int half = 0; half < 2; ++half) {
        const Numbers drawn = __builtin_convertvector(bits[half], Numbers);
        store_sixteen(drawn < below ? scale + Sixteen{} : Sixteen{}, factor + i + 16 * half);
      }
    }
  }
};

template <typename T>
void add_up(const T* a, const float* b, float* to, std::int64_t n) {
  if (a && b) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) to[i] = widen(a[i]) + b[i];
  } else if (a) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) to[i] = widen(a[i]);
  } else {
    std::copy(b, b + n, to);
  }
}

// sum = x + dropout(out); y = LayerNorm(sum), narrow and, where asked for, wide. `out` may be missing.
template <typename T>
void add_norm(const float* x, const T* out, float* sum, T* y, float* wide, float* mean, float* inverse, const float* gain,
              const float* bias, std::int64_t rows, std::int64_t d, float epsilon, const Dropout& dropout) {
#pragma omp parallel
  {
    std::vector<float> factor(round_up(d, Dropout::kColumns), 1.0f);
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* xr = x + r * d;
      float* sr = sum + r * d;
      float total = 0, squares = 0;
      if (out) {
        const T* o = out + r * d;
        dropout.draw(factor.data(), d, r, 0);
        const float* f = factor.data();
#pragma omp simd reduction(+ : total)
        for (std::int64_t i = 0; i < d; ++i) {
          sr[i] = xr[i] + widen(o[i]) * f[i];
          total += sr[i];
        }
      } else {
#pragma omp simd reduction(+ : total)
        for (std::int64_t i = 0; i < d; ++i) {
          sr[i] = xr[i];
          total += sr[i];
        }
      }
      const float m = total / d;
#pragma omp simd reduction(+ : squares)
      for (std::int64_t i = 0; i < d; ++i) squares += (sr[i] - m) * (sr[i] - m);
      const float s = 1.0f / std::sqrt(squares / d + epsilon);
      mean[r] = m;
      inverse[r] = s;
      T* yr = y + r * d;
      if (wide) {
        float* wr = wide + r * d;
#pragma omp simd
        for (std::int64_t i = 0; i < d; ++i) {
          wr[i] = (sr[i] - m) * s * gain[i] + bias[i];
          narrow(wr[i], yr[i]);
        }
      } else {
#pragma omp simd
        for (std::int64_t i = 0; i < d; ++i) narrow((sr[i] - m) * s * gain[i] + bias[i], yr[i]);
      }
    }
  }
}

// The gradients of x and of `out`, from those of the sum, of y and of y's wide twin (each of which may be missing).
template <typename T>
void add_norm_backward(const float* sum, const float* mean, const float* inverse, const float* gain, const float* of_sum,
                       const T* of_y, const float* of_wide, float* dx, T* dout, float* dgain, float* dbias, std::int64_t rows,
                       std::int64_t d, const Dropout& dropout) {
#pragma omp parallel
  {
    std::vector<float> factor(round_up(d, Dropout::kColumns), 1.0f), row(d), own_gain(d, 0.0f), own_bias(d, 0.0f);
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* sr = sum + r * d;
      const float m = mean[r], s = inverse[r];
      float *v = row.data(), *g = own_gain.data(), *b = own_bias.data(), *xr = dx + r * d;
      add_up(of_y ? of_y + r * d : nullptr, of_wide ? of_wide + r * d : nullptr, v, d);
      float first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
      for (std::int64_t i = 0; i < d; ++i) {
        const float h = (sr[i] - m) * s;
        g[i] += v[i] * h;
        b[i] += v[i];
        v[i] *= gain[i];
        first += v[i];
        second += v[i] * h;
      }
      first /= d;
      second /= d;
#pragma omp simd
      for (std::int64_t i = 0; i < d; ++i) xr[i] = s * (v[i] - first - (sr[i] - m) * s * second);
      if (of_sum) {
        const float* t = of_sum + r * d;
#pragma omp simd
        for (std::int64_t i = 0; i < d; ++i) xr[i] += t[i];
      }
      if (dout) {
        dropout.draw(factor.data(), d, r, 0);
        const float* f = factor.data();
        T* o = dout + r * d;
#pragma omp simd
        for (std::int64_t i = 0; i < d; ++i) narrow(xr[i] * f[i], o[i]);
      }
    }
#pragma omp critical
    for (std::int64_t i = 0; i < d; ++i) {
      dgain[i] += own_gain[i];
      dbias[i] += own_bias[i];
    }
  }
}

// A row in float, its sum, and its largest number, which is returned.
template <typename T>
float spread_out(const T* row, std::int64_t n, float* to, float& sum) {
  Sixteen total = {}, top = -INFINITY - Sixteen{};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Sixteen x = load_sixteen(row + i);
    store_sixteen(x, to + i);
    total += x;
    top = larger(x, top);
  }
  sum = sum_sixteen(total);
  float result = largest_of(top);
  for (; i < n; ++i) {
    to[i] = widen(row[i]);
    sum += to[i];
    result = std::max(result, to[i]);
  }
  return result;
}

// The logits become the gradient of the objective; the objective and the cross-entropy without smoothing are added to sums.
template <typename T>
void cross_entropy(T* logits, const std::int64_t* labels, double* sums, std::int64_t rows, std::int64_t symbols,
                   float smoothing) {
  double objective = 0, nll = 0;
#pragma omp parallel reduction(+ : objective, nll)
  {
    std::vector<float> buffer(symbols);
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      T* l = logits + r * symbols;
      float* e = buffer.data();
      float total = 0, all = 0;
      const float top = spread_out(l, symbols, e, all);
      const float right = e[labels[r]];
#pragma omp simd reduction(+ : total)
      for (std::int64_t i = 0; i < symbols; ++i) {
        e[i] = exponential(e[i] - top);
        total += e[i];
      }
      const float log_total = top + std::log(total), inverse = 1 / total, spread = smoothing / symbols;
      nll += log_total - right;
      objective += (1 - smoothing) * (log_total - right) + smoothing * (log_total - all / symbols);
#pragma omp simd
      for (std::int64_t i = 0; i < symbols; ++i) narrow(e[i] * inverse - spread, l[i]);
      narrow(e[labels[r]] * inverse - spread - (1 - smoothing), l[labels[r]]);
    }
  }
  sums[0] += objective;
  sums[1] += nll;
}

// Sequences laid end to end: sentence b's queries are rows queries[b] to queries[b + 1]. Strides are of rows, in elements.
struct Sequences {
  std::int64_t batch, heads, d_k, d_v;
  const std::int64_t *queries, *keys;
  std::int64_t query_stride, key_stride, value_stride, output_stride;
  std::int32_t causal;
  float scale;
};

template <typename T>
void load(const T* x, std::int64_t stride, std::int64_t n, std::int64_t d, std::int64_t width, float scale, float* to) {
  for (std::int64_t r = 0; r < n; ++r)
#pragma omp simd
    for (std::int64_t c = 0; c < d; ++c) to[r * width + c] = widen(x[r * stride + c]) * scale;
}

// Columns become rows of `width` numbers, zeros behind the n-th.
template <typename T>
void load_transposed(const T* x, std::int64_t stride, std::int64_t n, std::int64_t d, std::int64_t width, float* to) {
  std::int64_t c = 0;
  for (; c + 16 <= d; c += 16)
    for (std::int64_t r = 0; r < width; r += 16) {
      Sixteen tile[16] = {};
      for (std::int64_t i = 0; i < std::min<std::int64_t>(16, n - r); ++i) tile[i] = load_sixteen(x + (r + i) * stride + c);
      transpose_sixteen(tile);
      for (std::int64_t i = 0; i < 16; ++i) store_sixteen(tile[i], to + (c + i) * width + r);
    }
  for (; c < d; ++c)
    for (std::int64_t r = 0; r < width; ++r) to[c * width + r] = r < n ? widen(x[r * stride + c]) : 0.0f;
}

template <typename T>
void store(const float* from, std::int64_t width, std::int64_t n, std::int64_t d, std::int64_t stride, float scale, T* x) {
  for (std::int64_t r = 0; r < n; ++r)
#pragma omp simd
    for (std::int64_t c = 0; c < d; ++c) narrow(from[r * width + c] * scale, x[r * stride + c]);
}

// The first n of sixteen numbers; zeros in the places of the others.
inline Sixteen first(std::int64_t n, Sixteen x) {
  using Numbers = std::int32_t __attribute__((vector_size(64)));
  constexpr Numbers kPlaces = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return kPlaces < static_cast<std::int32_t>(std::clamp<std::int64_t>(n, 0, 16)) ? x : Sixteen{};
}

// One head of one sentence.
struct Task {
  std::int64_t head, first_query, queries, first_key, keys, width, lse;

  Task(const Sequences& s, std::int64_t number) {
    const std::int64_t b = number / s.heads;
    head = number % s.heads;
    first_query = s.queries[b];
    queries = s.queries[b + 1] - first_query;
    first_key = s.keys[b];
    keys = s.keys[b + 1] - first_key;
    width = round_up(keys, 16);
    lse = head * s.queries[s.batch] + first_query;
  }

  // How many keys query i may look at: with fewer queries than keys, the first keys are the past.
  std::int64_t seen(const Sequences& s, std::int64_t i) const { return s.causal ? keys - queries + i + 1 : keys; }

  // factor[j] for key j of query i: every head has 2^20 draws of a query's seed (as dropout.py shares them out).
  void draw(const Dropout& dropout, float* factor, std::int64_t i) const {
    dropout.draw(factor, width, first_query + i, static_cast<std::uint64_t>(head) << 20);
  }
};

// o = dropout(softmax(scale q k^T)) v, and the logarithm of each query's sum of exponentials.
template <typename T>
void attention(const T* q, const T* k, const T* v, T* o, float* lse, const Sequences& s, const Dropout& dropout) {
  const std::int64_t wide = round_up(s.d_v, 16);
#pragma omp parallel
  {
    std::vector<float> qf, kt, vf, p, factor, of;
#pragma omp for schedule(dynamic, 8)
    for (std::int64_t number = 0; number < s.batch * s.heads; ++number) {
      const Task t(s, number);
      qf.resize(t.queries * s.d_k);
      kt.resize(s.d_k * t.width);
      vf.assign(t.keys * wide, 0.0f);
      p.resize(t.queries * t.width);
      factor.assign(round_up(t.width, Dropout::kColumns), 1.0f);
      of.resize(t.queries * wide);
      load(q + t.first_query * s.query_stride + t.head * s.d_k, s.query_stride, t.queries, s.d_k, s.d_k, s.scale, qf.data());
      load_transposed(k + t.first_key * s.key_stride + t.head * s.d_k, s.key_stride, t.keys, s.d_k, t.width, kt.data());
      load(v + t.first_key * s.value_stride + t.head * s.d_v, s.value_stride, t.keys, s.d_v, wide, 1.0f, vf.data());
      product(qf.data(), s.d_k, 1, kt.data(), t.width, p.data(), t.width, t.queries, t.width, s.d_k);
      for (std::int64_t i = 0; i < t.queries; ++i) {
        const std::int64_t n = t.seen(s, i);
        float* pr = p.data() + i * t.width;
        for (std::int64_t j = n; j < t.width; ++j) pr[j] = -INFINITY;
        const float top = largest(pr, t.width);
        Sixteen sum = {};
        for (std::int64_t j = 0; j < t.width; j += 16) {
          const Sixteen weight = first(n - j, exponential(load_sixteen(pr + j) - top));
          store_sixteen(weight, pr + j);
          sum += weight;
        }
        const float total = sum_sixteen(sum), inverse = 1 / total;
        lse[t.lse + i] = top + std::log(total);
        t.draw(dropout, factor.data(), i);
        const float* f = factor.data();
        for (std::int64_t j = 0; j < t.width; j += 16)
          store_sixteen(load_sixteen(pr + j) * (load_sixteen(f + j) * inverse), pr + j);
      }
      product(p.data(), t.width, 1, vf.data(), wide, of.data(), wide, t.queries, wide, t.keys);
      store(of.data(), wide, t.queries, s.d_v, s.output_stride, 1.0f, o + t.first_query * s.output_stride + t.head * s.d_v);
    }
  }
}

template <typename T>
void attention_backward(const T* q, const T* k, const T* v, const T* o, const T* of_o, const float* lse, T* dq, T* dk, T* dv,
                        const Sequences& s, const Dropout& dropout) {
  const std::int64_t wide_k = round_up(s.d_k, 16), wide_v = round_up(s.d_v, 16);
#pragma omp parallel
  {
    std::vector<float> qf, gf, kf, kt, vt, p, ds, factor, to;
#pragma omp for schedule(dynamic, 8)
    for (std::int64_t number = 0; number < s.batch * s.heads; ++number) {
      const Task t(s, number);
      const std::int64_t q_at = t.first_query * s.query_stride + t.head * s.d_k;
      const std::int64_t k_at = t.first_key * s.key_stride + t.head * s.d_k;
      const std::int64_t v_at = t.first_key * s.value_stride + t.head * s.d_v;
      const std::int64_t o_at = t.first_query * s.output_stride + t.head * s.d_v;
      qf.assign(t.queries * wide_k, 0.0f);
      gf.assign(t.queries * wide_v, 0.0f);
      kf.assign(t.keys * wide_k, 0.0f);
      kt.resize(s.d_k * t.width);
      vt.resize(s.d_v * t.width);
      p.resize(t.queries * t.width);
      ds.resize(t.queries * t.width);
      factor.assign(round_up(t.width, Dropout::kColumns), 1.0f);
      to.resize(std::max(t.queries, t.keys) * std::max(wide_k, wide_v));
      load(q + q_at, s.query_stride, t.queries, s.d_k, wide_k, s.scale, qf.data());
      load(of_o + o_at, s.output_stride, t.queries, s.d_v, wide_v, 1.0f, gf.data());
      load(k + k_at, s.key_stride, t.keys, s.d_k, wide_k, 1.0f, kf.data());
      load_transposed(k + k_at, s.key_stride, t.keys, s.d_k, t.width, kt.data());
      load_transposed(v + v_at, s.value_stride, t.keys, s.d_v, t.width, vt.data());
      product(qf.data(), wide_k, 1, kt.data(), t.width, p.data(), t.width, t.queries, t.width, s.d_k);
      product(gf.data(), wide_v, 1, vt.data(), t.width, ds.data(), t.width, t.queries, t.width, s.d_v);
      for (std::int64_t i = 0; i < t.queries; ++i) {
        const std::int64_t n = t.seen(s, i);
        const T* out = o + o_at + i * s.output_stride;
        const float* g = gf.data() + i * wide_v;
        float inner = 0;
#pragma omp simd reduction(+ : inner)
        for (std::int64_t c = 0; c < s.d_v; ++c) inner += g[c] * widen(out[c]);
        t.draw(dropout, factor.data(), i);
        const float log_sum = lse[t.lse + i], *f = factor.data();
        float *pr = p.data() + i * t.width, *dr = ds.data() + i * t.width;
        for (std::int64_t j = 0; j < t.width; j += 16) {
          const Sixteen weight = first(n - j, exponential(load_sixteen(pr + j) - log_sum)), kept = load_sixteen(f + j);
          store_sixteen(weight * (load_sixteen(dr + j) * kept - inner), dr + j);
          store_sixteen(weight * kept, pr + j);
        }
      }
      product(ds.data(), t.width, 1, kf.data(), wide_k, to.data(), wide_k, t.queries, wide_k, t.keys);
      store(to.data(), wide_k, t.queries, s.d_k, s.query_stride, s.scale, dq + q_at);
      product(ds.data(), 1, t.width, qf.data(), wide_k, to.data(), wide_k, t.keys, wide_k, t.queries);
      store(to.data(), wide_k, t.keys, s.d_k, s.key_stride, 1.0f, dk + k_at);
      product(p.data(), 1, t.width, gf.data(), wide_v, to.data(), wide_v, t.keys, wide_v, t.queries);
      store(to.data(), wide_v, t.keys, s.d_v, s.value_stride, 1.0f, dv + v_at);
    }
  }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define BOTH(T, name)                                                                                                       \
  EXPORT void add_norm_##name(const float* x, const T* out, float* sum, T* y, float* wide, float* mean, float* inverse,     \
                              const float* gain, const float* bias, std::int64_t rows, std::int64_t d, float epsilon,       \
                              const Dropout* dropout) {                                                                      \
    add_norm(x, out, sum, y, wide, mean, inverse, gain, bias, rows, d, epsilon, *dropout);                                  \
  }                                                                                                                          \
  EXPORT void add_norm_backward_##name(const float* sum, const float* mean, const float* inverse, const float* gain,        \
                                       const float* of_sum, const T* of_y, const float* of_wide, float* dx, T* dout,        \
                                       float* dgain, float* dbias, std::int64_t rows, std::int64_t d,                       \
                                       const Dropout* dropout) {                                                             \
    add_norm_backward(sum, mean, inverse, gain, of_sum, of_y, of_wide, dx, dout, dgain, dbias, rows, d, *dropout);          \
  }                                                                                                                          \
  EXPORT void cross_entropy_##name(T* logits, const std::int64_t* labels, double* sums, std::int64_t rows,                  \
                                   std::int64_t symbols, float smoothing) {                                                  \
    cross_entropy(logits, labels, sums, rows, symbols, smoothing);                                                           \
  }                                                                                                                          \
  EXPORT void attention_##name(const T* q, const T* k, const T* v, T* o, float* lse, const Sequences* sequences,            \
                               const Dropout* dropout) {                                                                     \
    attention(q, k, v, o, lse, *sequences, *dropout);                                                                        \
  }                                                                                                                          \
  EXPORT void attention_backward_##name(const T* q, const T* k, const T* v, const T* o, const T* of_o, const float* lse,    \
                                        T* dq, T* dk, T* dv, const Sequences* sequences, const Dropout* dropout) {           \
    attention_backward(q, k, v, o, of_o, lse, dq, dk, dv, *sequences, *dropout);                                             \
  }

BOTH(float, float32)
BOTH(Bfloat16, bfloat16)
