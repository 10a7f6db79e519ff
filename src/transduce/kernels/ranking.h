// What a search does with the scores of a step: ranking, and a round.
#pragma once
#include "structures.h"

namespace transduce {

// The best `count` continuations of each sentence, best first; where fewer are possible, the last values are minus infinity. NaN where
// a sentence's scores are no numbers.
void rank_all(const Ranking& ranking, const Lists* lists);

// A round of a search, of whose rows the logits lie where `places` says, as for a ranking.
void advance(Round& round, const Lists* lists, const std::int64_t* places = nullptr);

}  // namespace transduce
