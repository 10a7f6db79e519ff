// One query of an attention whose scores have a hidden layer, and back.
#pragma once
#include "attending.h"
#include "recurrence.h"

namespace transduce {

class Additive {
 public:
  // What the gradients of `vector` are added to is the caller's.
  explicit Additive(const AdditiveAttention& all) : all_(all), of_vector_(all.units) {}

  // The context of a query of row b, and its weights.
  void forward(std::int64_t b, const float* query, float* weights, float* context) {
    const std::int64_t first = all_.begins[b], count = all_.ends[b] - first, width = columns_of(count);
    float* scores = at_least(scores_, width);
    for (std::int64_t j = 0; j < count; ++j) {
      const float* key = all_.keys + (first + j) * all_.units;
      Sixteen sum = {};
      by_sixteens(all_.units, [&](std::int64_t u, auto n) {
        sum += load_first(all_.vector + u, n) * hyperbolic_tangent(load_first(query + u, n) + load_first(key + u, n));
      });
      scores[j] = sum_sixteen(sum);
    }
    if (count) softmax(scores, count, width, all_.sharpness);
    std::copy_n(scores, count, weights);
    std::fill(weights + count, weights + all_.columns, 0.0f);
    by_sixteens(all_.memory, [&](std::int64_t m, auto n) {
      Sixteen sum = {};
      for (std::int64_t j = 0; j < count; ++j) sum += scores[j] * load_first(all_.values + (first + j) * all_.memory + m, n);
      store_first(sum, n, context + m);
    });
  }

  // From a context's gradient to the query's; those of keys, values and vector are added up.
  void backward(std::int64_t b, const float* query, const float* weights, const float* of_context, float* of_query) {
    const std::int64_t first = all_.begins[b], count = all_.ends[b] - first;
    float* of_scores = at_least(scores_, count);
    float mean = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      const float* value = all_.values + (first + j) * all_.memory;
      float* of_value = all_.of_values + (first + j) * all_.memory;
      Sixteen sum = {};
      by_sixteens(all_.memory, [&](std::int64_t m, auto n) {
        const Sixteen received = load_first(of_context + m, n);
        sum += received * load_first(value + m, n);
        store_first(load_first(of_value + m, n) + weights[j] * received, n, of_value + m);
      });
      of_scores[j] = sum_sixteen(sum);
      mean += weights[j] * of_scores[j];
    }
    for (std::int64_t j = 0; j < count; ++j) of_scores[j] = all_.sharpness * weights[j] * (of_scores[j] - mean);
    by_sixteens(all_.units, [&](std::int64_t u, auto n) {
      const Sixteen asked = load_first(query + u, n), vector = load_first(all_.vector + u, n);
      Sixteen of_asked = {}, of_vector = load_first(&of_vector_[u], n);
      for (std::int64_t j = 0; j < count; ++j) {
        float* of_key = all_.of_keys + (first + j) * all_.units + u;
        const Sixteen hidden = hyperbolic_tangent(asked + load_first(all_.keys + (first + j) * all_.units + u, n));
        const Sixteen of_sum = of_scores[j] * vector * (1.0f - hidden * hidden);
        of_asked += of_sum;
        of_vector += of_scores[j] * hidden;
        store_first(load_first(of_key, n) + of_sum, n, of_key);
      }
      store_first(of_asked, n, of_query + u);
      store_first(of_vector, n, &of_vector_[u]);
    });
  }

  // Behind all rows of a thread, one thread at a time.
  void finish() const {
    for (std::int64_t u = 0; u < all_.units; ++u) all_.of_vector[u] += of_vector_[u];
  }

 private:
  const AdditiveAttention& all_;
  Floats scores_, of_vector_;
};

}  // namespace transduce
