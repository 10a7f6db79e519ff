// The element-wise kernels of a training step on CPUs: one pass over memory where PyTorch's operations take
// several. The plain formula of each stands in the Python file of its name. It knows neither Python nor torch: pointers and
// sizes come in, and the memory behind them is the caller's.
#include <omp.h>

#include <algorithm>
#include <vector>

#include "activation.h"
#include "dropping.h"
#include "guard.h"
#include "structures.h"
#include "training.h"
#include "words.h"

using namespace transduce;

namespace {

// So many numbers for each thread of a parallel region, all made before it begins: in it, nothing may fail.
class Scratch {
 public:
  explicit Scratch(std::int64_t numbers, float filled = 0.0f)
      : numbers_(round_up(numbers, Dropout::kColumns)), room_(omp_get_max_threads() * numbers_, filled) {}

  float* own() { return of(omp_get_thread_num()); }
  float* of(int thread) { return room_.data() + thread * numbers_; }

 private:
  std::int64_t numbers_;
  std::vector<float> room_;
};

// sum = x + dropout(out); y = LayerNorm(sum).
template <typename T>
void add_norm(const AddNorm<T>& a, const Dropout& dropout) {
  const std::int64_t d = a.d;
  float *mean = a.statistics, *inverse = a.statistics + a.rows;
  Scratch factors(d, 1.0f);
#pragma omp parallel
  {
    float* f = factors.own();
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const float* xr = a.x + r * d;
      const T* o = a.out ? a.out + r * d : nullptr;
      float *sr = a.sum + r * d, *wr = a.wide ? a.wide + r * d : nullptr;
      T* yr = a.y + r * d;
      if (o) dropout.draw(f, d, r);
      Sixteen total = {}, squares = {};
      by_sixteens(d, [&](std::int64_t i, auto n) {
        Sixteen s = load_first(xr + i, n);
        if (o) s += load_first(o + i, n) * load_sixteen(f + i);
        store_first(s, n, sr + i);
        total += s;
      });
      const float m = sum_sixteen(total) / d;
      by_sixteens(d, [&](std::int64_t i, auto n) {
        const Sixteen off = keep_first(load_first(sr + i, n) - m, n);
        squares += off * off;
      });
      const float s = 1.0f / std::sqrt(sum_sixteen(squares) / d + a.epsilon);
      mean[r] = m;
      inverse[r] = s;
      by_sixteens(d, [&](std::int64_t i, auto n) {
        const Sixteen found = (load_first(sr + i, n) - m) * s * load_first(a.gain + i, n) + load_first(a.bias + i, n);
        if (wr) store_first(found, n, wr + i);
        store_first(found, n, yr + i);
      });
    }
  }
}

// y = dropout(x); of a gradient, that is the gradient before.
template <typename T>
void drop(const T* x, T* y, std::int64_t rows, std::int64_t d, const Dropout& dropout) {
  Scratch factors(d, 1.0f);
#pragma omp parallel
  {
    float* f = factors.own();
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      dropout.draw(f, d, r);
      const T* xr = x + r * d;
      T* yr = y + r * d;
#pragma omp simd
      for (std::int64_t i = 0; i < d; ++i) narrow(widen(xr[i]) * f[i], yr[i]);
    }
  }
}

template <typename T>
void add_norm_backward(const AddNormBackward<T>& a, const Dropout& dropout) {
  const std::int64_t d = a.d;
  const float *mean = a.statistics, *inverse = a.statistics + a.rows;
  Scratch factors(d, 1.0f), scaled_rows(d), gains(d), biases(d);
#pragma omp parallel
  {
    float *f = factors.own(), *v = scaled_rows.own(), *g = gains.own(), *b = biases.own();
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const float* sr = a.sum + r * d;
      const float m = mean[r], s = inverse[r];
      Sixteen products = {}, total = {};
      by_sixteens(d, [&](std::int64_t i, auto n) {
        Sixteen received = a.of_y ? load_first(a.of_y + r * d + i, n) : Sixteen{};
        if (a.of_wide) received += load_first(a.of_wide + r * d + i, n);
        const Sixteen h = (load_first(sr + i, n) - m) * s, scaled = received * load_first(a.gain + i, n);
        store_sixteen(load_sixteen(g + i) + received * h, g + i);
        store_sixteen(load_sixteen(b + i) + received, b + i);
        store_sixteen(scaled, v + i);
        total += scaled;
        products += scaled * h;
      });
      const float first = sum_sixteen(total) / d, second = sum_sixteen(products) / d;
      if (a.of_out) dropout.draw(f, d, r);
      by_sixteens(d, [&](std::int64_t i, auto n) {
        Sixteen found = s * (load_sixteen(v + i) - first - (load_first(sr + i, n) - m) * s * second);
        if (a.of_sum) found += load_first(a.of_sum + r * d + i, n);
        store_first(found, n, a.of_x + r * d + i);
        if (a.of_out) store_first(found * load_sixteen(f + i), n, a.of_out + r * d + i);
      });
    }
    // Thread by thread, whichever was done first: a training with as many threads ends with the same bits.
    const int threads = omp_get_num_threads();
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < d; ++i)
      for (int thread = 0; thread < threads; ++thread) {
        a.of_gain[i] += gains.of(thread)[i];
        a.of_bias[i] += biases.of(thread)[i];
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
// `weights` multiply each row's part of the objective and may be missing; a row of weight 0 is left out of both sums.
template <typename T>
void cross_entropy(T* logits, const std::int64_t* labels, const float* weights, double* sums, std::int64_t rows,
                   std::int64_t symbols, float smoothing) {
  for (std::int64_t r = 0; r < rows; ++r) require_index(labels[r], symbols);
  Scratch buffers(symbols);
  std::vector<double> of_threads(2 * omp_get_max_threads());
#pragma omp parallel
  {
    float* e = buffers.own();
    double objective = 0, nll = 0;
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      T* l = logits + r * symbols;
      const float weight = weights ? weights[r] : 1.0f;
      if (weight == 0) {
        std::fill(l, l + symbols, T{});
        continue;
      }
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
      objective += weight * ((1 - smoothing) * (log_total - right) + smoothing * (log_total - all / symbols));
#pragma omp simd
      for (std::int64_t i = 0; i < symbols; ++i) narrow(weight * (e[i] * inverse - spread), l[i]);
      narrow(weight * (e[labels[r]] * inverse - spread - (1 - smoothing)), l[labels[r]]);
    }
    of_threads[2 * omp_get_thread_num()] = objective;
    of_threads[2 * omp_get_thread_num() + 1] = nll;
  }
  for (std::size_t i = 0; i < of_threads.size(); ++i) sums[i % 2] += of_threads[i];
}

}  // namespace

#define BOTH(T, name)                                                                                                              \
  TRANSDUCE_EXPORT add_norm_##name(const AddNorm<T>* all, const Dropout* dropout) {                                                   \
    return guarded([=] { add_norm(*all, *dropout); });                                                                                \
  }                                                                                                                                   \
  TRANSDUCE_EXPORT add_norm_backward_##name(const AddNormBackward<T>* all, const Dropout* dropout) {                                  \
    return guarded([=] { add_norm_backward(*all, *dropout); });                                                                       \
  }                                                                                                                                   \
  TRANSDUCE_EXPORT drop_##name(const T* x, T* y, std::int64_t rows, std::int64_t d, const Dropout* dropout) {                         \
    return guarded([=] { drop(x, y, rows, d, *dropout); });                                                                           \
  }                                                                                                                                   \
  TRANSDUCE_EXPORT cross_entropy_##name(T* logits, const std::int64_t* labels, const float* weights, double* sums, std::int64_t rows, \
                                        std::int64_t symbols, float smoothing) {                                                      \
    return guarded([=] { cross_entropy(logits, labels, weights, sums, rows, symbols, smoothing); });                                  \
  }

BOTH(float, float32)
BOTH(Bfloat16, bfloat16)

// y[r][i] = activation(x[r][i]); `gated`: times x[r][width + i], x having twice the width.
TRANSDUCE_EXPORT activate(const Bfloat16* x, Bfloat16* y, std::int64_t rows, std::int64_t width, std::int64_t activation,
                          std::int64_t gated) {
  const Activated activated{static_cast<Activation>(activation), gated != 0, width};
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) activated.forward(x + r * activated.inputs(), y + r * width);
  return kDone;
}

// The gradient of x, from that of y.
TRANSDUCE_EXPORT activate_backward(const Bfloat16* gradient, const Bfloat16* x, Bfloat16* of_x, std::int64_t rows, std::int64_t width,
                                   std::int64_t activation, std::int64_t gated) {
  const Activated activated{static_cast<Activation>(activation), gated != 0, width};
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r)
    activated.backward(gradient + r * width, x + r * activated.inputs(), of_x + r * activated.inputs());
  return kDone;
}
