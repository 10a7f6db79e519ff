// Attention whose scores have a hidden layer (Bahdanau et al. 2015): of queries that are all known, and in the loop of an LSTM whose state
// asks. The plain forms are in layers/recurrent_attention.py and models/recurrent_decoder.py.
#include "looking.h"

#include <optional>

namespace transduce {
namespace {

// body(looking, rows) in every thread, for its rows of the batch, and then what they leave to be added up, thread by thread.
template <typename Body>
void in_threads(const HiddenLayerAttention& attention, const std::int64_t* offsets, std::int64_t batch, bool back, Body body) {
  Caught caught;
#pragma omp parallel
  {
    std::optional<Looking> looking;
    caught([&] {
      looking.emplace(attention);
      body(*looking, OwnRows(offsets, batch, false));
    });
#pragma omp for ordered schedule(static, 1)
    for (int thread = 0; thread < omp_get_num_threads(); ++thread)
#pragma omp ordered
      if (back && looking) looking->finish();
  }
  caught.rethrow();
}

void look_all(const HiddenLayerAttention& all, const std::int64_t* offsets, std::int64_t batch) {
  in_threads(all, offsets, batch, false, [&](Looking& looking, const OwnRows& rows) {
    for (std::int64_t r = 0; r < rows.count(); ++r)
      for (std::int64_t i = offsets[rows[r]]; i < offsets[rows[r] + 1]; ++i)
        looking.look(rows[r], all.queries + i * all.units, all.weights + i * all.columns, all.contexts + i * all.memory);
  });
}

void look_all_back(const HiddenLayerAttention& all, const std::int64_t* offsets, std::int64_t batch) {
  in_threads(all, offsets, batch, true, [&](Looking& looking, const OwnRows& rows) {
    for (std::int64_t r = 0; r < rows.count(); ++r)
      for (std::int64_t i = offsets[rows[r]]; i < offsets[rows[r] + 1]; ++i)
        looking.look_back(rows[r], all.queries + i * all.units, all.weights + i * all.columns, all.of_contexts + i * all.memory,
                          all.of_queries + i * all.units);
  });
}

// Bahdanau's loop: the state before a step asks, and the cells read the context beside what is known.
template <typename T>
void read_rows(const Cells<T>& all, const HiddenLayerAttention& attention, const float* asking) {
  static thread_local Panels<T> room, asking_room;
  Panels<T>&panels = room, &of_queries = asking_room;
  const std::int64_t width = attention.memory + all.hidden;
  panels.by_gates(all.weight, all.hidden, width);
  of_queries.by_outputs(asking, attention.units, all.hidden);
  in_threads(attention, all.offsets, all.batch, false, [&](Looking& looking, const OwnRows& rows) {
    const std::int64_t stride = whole_words<T>(all.hidden);
    Remembering<T> cells(all, rows, width);
    std::vector<T> states(rows.count() * stride);
    for (std::int64_t step = 0; step < rows.longest(); ++step) {
      const std::int64_t n = rows.going(step);
      for (std::int64_t r = 0; r < n; ++r) std::copy_n(cells.state(r), all.hidden, states.data() + r * stride);
      of_queries.multiply(states.data(), stride, n, [&](std::int64_t r, std::int64_t c, Sixteen sums) {
        store_first(sums, attention.units - c, attention.queries + rows.token(r, step) * attention.units + c);
      });
      for (std::int64_t r = 0; r < n; ++r) {
        const std::int64_t token = rows.token(r, step);
        float* context = attention.contexts + token * attention.memory;
        looking.look(rows[r], attention.queries + token * attention.units, attention.weights + token * attention.columns, context);
        by_sixteens(attention.memory,
                    [&](std::int64_t m, auto count) { store_first(load_first(context + m, count), count, cells.read(r) + m); });
      }
      cells.step(step, panels);
    }
  });
}

template <typename T>
void go_back(const Cells<T>& all, const HiddenLayerAttention& attention, const float* asking) {
  static thread_local Panels<T> room, asking_room;
  Panels<T>&panels = room, &of_queries = asking_room;
  const std::int64_t width = attention.memory + all.hidden;
  panels.by_inputs(all.weight, kGates * all.hidden, width);
  of_queries.by_inputs(asking, attention.units, all.hidden);
  in_threads(attention, all.offsets, all.batch, true, [&](Looking& looking, const OwnRows& rows) {
    const std::int64_t wide = round_up(width, 16), stride = whole_words<T>(attention.units);
    Regretting<T> cells(all, rows);
    Floats of_read(rows.count() * wide);
    std::vector<T> asked(rows.count() * stride);
    for (std::int64_t step = rows.longest() - 1; step >= 0; --step) {
      const std::int64_t n = rows.going(step);
      panels.multiply(cells.step(step), kGates * all.hidden, n,
                      [&](std::int64_t r, std::int64_t c, Sixteen sums) { store_sixteen(sums, &of_read[r * wide + c]); });
      for (std::int64_t r = 0; r < n; ++r) {
        const std::int64_t token = rows.token(r, step);
        float *of_context = &of_read[r * wide], *of_query = attention.of_queries + token * attention.units;
        const float* received = attention.of_contexts + token * attention.memory;
        for (std::int64_t m = 0; m < attention.memory; ++m) of_context[m] += received[m];
        looking.look_back(rows[r], attention.queries + token * attention.units, attention.weights + token * attention.columns, of_context,
                          of_query);
        by_sixteens(attention.units, [&](std::int64_t u, auto count) {
          store_first(load_first(of_query + u, count), count, asked.data() + r * stride + u);
        });
      }
      of_queries.multiply(asked.data(), stride, n, [&](std::int64_t r, std::int64_t c, Sixteen sums) {
        store_first(sums + load_first(&of_read[r * wide + attention.memory + c], all.hidden - c), all.hidden - c, cells.of_state(r) + c);
      });
    }
    cells.finish();
  });
}

}  // namespace
}  // namespace transduce

using namespace transduce;

// The contexts of the symbols' queries: row b has those from offsets[b] to offsets[b + 1].
TRANSDUCE_EXPORT look(const HiddenLayerAttention* all, const std::int64_t* offsets, std::int64_t batch) {
  return guarded([=] { look_all(*all, offsets, batch); });
}
TRANSDUCE_EXPORT look_backward(const HiddenLayerAttention* all, const std::int64_t* offsets, std::int64_t batch) {
  return guarded([=] { look_all_back(*all, offsets, batch); });
}

// As `lstm`: cells that read [c; h] beside what is known, c being what a query, `asking` (units, hidden) times the state before, looks at.
TRANSDUCE_EXPORT attending_lstm_float32(const Cells<float>* all, const HiddenLayerAttention* attention, const float* asking) {
  return guarded([=] { read_rows(*all, *attention, asking); });
}
TRANSDUCE_EXPORT attending_lstm_bfloat16(const Cells<Bfloat16>* all, const HiddenLayerAttention* attention, const float* asking) {
  return guarded([=] { read_rows(*all, *attention, asking); });
}
TRANSDUCE_EXPORT attending_lstm_backward_float32(const Cells<float>* all, const HiddenLayerAttention* attention, const float* asking) {
  return guarded([=] { go_back(*all, *attention, asking); });
}
TRANSDUCE_EXPORT attending_lstm_backward_bfloat16(const Cells<Bfloat16>* all, const HiddenLayerAttention* attention, const float* asking) {
  return guarded([=] { go_back(*all, *attention, asking); });
}
