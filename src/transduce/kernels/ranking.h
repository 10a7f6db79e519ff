// What a round of a search has in common with ranking alone.
#pragma once
#include "structures.h"

namespace transduce {

// The best `count` continuations of each sentence, best first; where fewer are possible, the last values are minus infinity. NaN where
// a sentence's scores are no numbers.
void rank_all(const Ranking& ranking, const Lists* lists);

}  // namespace transduce
