// The element-wise kernels of a training step on CPUs: one pass over memory where PyTorch's operations take
// several. The plain formula of each stands in the Python file of its name. It knows neither Python nor torch: pointers and
// sizes come in, and the memory behind them is the caller's.
#include <vector>

#include "dropping.h"

using namespace transduce;

namespace {

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

// sum = x + dropout(out); y = LayerNorm(sum), narrow and, where asked for, wide. `out` may be missing. The statistics are all rows' means,
// then one by each row's standard deviation.
template <typename T>
void add_norm(const float* x, const T* out, float* sum, T* y, float* wide, float* statistics, const float* gain, const float* bias,
              std::int64_t rows, std::int64_t d, float epsilon, const Dropout& dropout) {
  float *mean = statistics, *inverse = statistics + rows;
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
        dropout.draw(factor.data(), d, r);
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

// y = dropout(x); of a gradient, that is the gradient before.
template <typename T>
void drop(const T* x, T* y, std::int64_t rows, std::int64_t d, const Dropout& dropout) {
#pragma omp parallel
  {
    std::vector<float> factor(round_up(d, Dropout::kColumns), 1.0f);
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      dropout.draw(factor.data(), d, r);
      const float* f = factor.data();
      const T* xr = x + r * d;
      T* yr = y + r * d;
#pragma omp simd
      for (std::int64_t i = 0; i < d; ++i) narrow(widen(xr[i]) * f[i], yr[i]);
    }
  }
}

// The gradients of x and of `out`, from those of the sum, of y and of y's wide twin (each of which may be missing).
template <typename T>
void add_norm_backward(const float* sum, const float* statistics, const float* gain, const float* of_sum, const T* of_y,
                       const float* of_wide, float* dx, T* dout, float* dgain, float* dbias, std::int64_t rows, std::int64_t d,
                       const Dropout& dropout) {
  const float *mean = statistics, *inverse = statistics + rows;
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
        dropout.draw(factor.data(), d, r);
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

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define BOTH(T, name)                                                                                                       \
  EXPORT void add_norm_##name(const float* x, const T* out, float* sum, T* y, float* wide, float* statistics,               \
                              const float* gain, const float* bias, std::int64_t rows, std::int64_t d, float epsilon,       \
                              const Dropout* dropout) {                                                                      \
    add_norm(x, out, sum, y, wide, statistics, gain, bias, rows, d, epsilon, *dropout);                                  \
  }                                                                                                                          \
  EXPORT void add_norm_backward_##name(const float* sum, const float* statistics, const float* gain,                        \
                                       const float* of_sum, const T* of_y, const float* of_wide, float* dx, T* dout,        \
                                       float* dgain, float* dbias, std::int64_t rows, std::int64_t d,                       \
                                       const Dropout* dropout) {                                                             \
    add_norm_backward(sum, statistics, gain, of_sum, of_y, of_wide, dx, dout, dgain, dbias, rows, d, *dropout);          \
  }                                                                                                                          \
  EXPORT void drop_##name(const T* x, T* y, std::int64_t rows, std::int64_t d, const Dropout* dropout) {                    \
    drop(x, y, rows, d, *dropout);                                                                                           \
  }                                                                                                                          \
  EXPORT void cross_entropy_##name(T* logits, const std::int64_t* labels, double* sums, std::int64_t rows,                  \
                                   std::int64_t symbols, float smoothing) {                                                  \
    cross_entropy(logits, labels, sums, rows, symbols, smoothing);                                                           \
  }

BOTH(float, float32)
BOTH(Bfloat16, bfloat16)
