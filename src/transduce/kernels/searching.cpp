// Several rounds of a search in one call: a step of the decoder and a round of ranking by turns, until there is something for the caller to
// do. The plain formula is search/beam.py, with one call for each.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "guard.h"
#include "ranking.h"
#include "reading.h"

using namespace transduce;

namespace {

// Each row looks back at what the row that it goes on from has looked back at, as far as its sentence has read.
void reorder(const Step& step, const Round& round) {
  static thread_local std::vector<std::int32_t> before;
  const std::int64_t capacity = step.past->capacity;
  for (std::int64_t i = 0; i < step.sentences; ++i) {
    const std::int64_t first = i * step.beam, columns = step.lengths[i] + 1, *rows = round.rows + first;
    std::int64_t b = 0;
    while (b < step.beam && rows[b] == first + b) ++b;
    if (b == step.beam) continue;
    before.resize(step.beam * columns);
    for (std::int64_t k = 0; k < step.beam; ++k)
      std::copy_n(step.ancestors + (first + k) * capacity, columns, before.data() + k * columns);
    for (; b < step.beam; ++b) {
      require_index(rows[b] - first, step.beam);
      std::copy_n(before.data() + (rows[b] - first) * columns, columns, step.ancestors + (first + b) * capacity);
    }
  }
}

// Sentences whose outputs are certain go on no more: their rows read nothing.
void silence(const Round& round) {
  for (std::int64_t i = 0; i < round.sentences; ++i)
    if (round.certain[i]) {
      std::fill_n(round.so_far + i * round.beam, round.beam, -INFINITY);
      std::fill_n(round.newest + i * round.beam, round.beam, kReadsNothing);
    }
}

template <typename T>
void search(const Stack& stack, const Matrix& projection, const Step& step, Round& round, const Lists* lists, Pace& pace) {
  static thread_local std::vector<std::int64_t> places;
  const auto start = std::chrono::steady_clock::now();
  const bool fits = step.sentences == round.sentences && step.beam == round.beam && step.tokens == round.newest;
  if (!fits || projection.outputs != round.width) throw std::invalid_argument("a step of other rows than the round's");
  for (pace.made = 0; pace.made < pace.rounds;) {
    const Reading& reading = read<T>(stack, projection, step, round.logits);
    places.assign(step.sentences * step.beam, -1);
    for (std::int64_t k = 0; k < reading.count(); ++k) places[reading.rows[k]] = k;
    advance(round, lists, places.data());
    if (round.not_a_number) return;
    ++pace.made;
    if (round.moved) reorder(step, round);
    for (std::int64_t i = 0; i < step.sentences; ++i) ++step.lengths[i];
    silence(round);
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - start;
    if (round.done == round.sentences || gone.count() >= pace.seconds) return;
  }
}

}  // namespace

#define BOTH(T, name)                                                                                                    \
  TRANSDUCE_EXPORT search_##name(const Stack* stack, const Matrix* projection, const Step* step, Round* round,          \
                                 const Lists* lists, Pace* pace) {                                                      \
    return guarded([=] { search<T>(*stack, *projection, *step, *round, lists, *pace); });                                \
  }

BOTH(float, float32)
BOTH(Bfloat16, bfloat16)
