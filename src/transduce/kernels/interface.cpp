// What a library says of itself before it is called: Python compares it with what it would pass.
#include "dropping.h"
#include "guard.h"
#include "stack.h"
#include "structures.h"
#include "sublayers.h"

using namespace transduce;

namespace {

// Counts up with every change of an exported function's arguments or of a structure's fields, or of what they mean; interface.py
// has the same number.
constexpr std::int64_t kInterface = 13;

}  // namespace

// The interface's number, then the sizes of the structures in bytes, in interface.py's order.
TRANSDUCE_EXPORT interface(std::int64_t* to, std::int64_t count) {
  const std::int64_t numbers[] = {kInterface,    sizeof(Dropout), sizeof(Sequences), sizeof(Maps), sizeof(Matrix),
                                  sizeof(Norm),  sizeof(Layer),   sizeof(Stack),     sizeof(Past), sizeof(Memory), sizeof(Step), sizeof(Lists),
                                  sizeof(Ranking), sizeof(Searched), sizeof(Ended), sizeof(Written), sizeof(Round), sizeof(Pace), sizeof(AddNorm<float>),
                                  sizeof(AddNormBackward<float>), sizeof(Sublayer), sizeof(Sublayers), sizeof(SublayersBackward),
                                  sizeof(Cells<float>), sizeof(AdditiveAttention)};
  const std::int64_t all = sizeof numbers / sizeof *numbers;
  if (count != all) return kOutOfRange;
  for (std::int64_t i = 0; i < all; ++i) to[i] = numbers[i];
  return kDone;
}
