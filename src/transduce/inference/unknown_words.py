"""Unknown words of an output become the words of the source that they attend to, or these words' entries.

The "PosUnk" of the paper's Table 2, after Luong et al. (2015, "Addressing the Rare Word Problem"), who teach a model to
point at the source; here attention points, as in Jean et al. (2015).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from jaxtyping import Float
from torch import Tensor

from transduce.config import BadInputError, GenerationConfig
from transduce.inference.engine import has_cross_attention
from transduce.models import TrainableModel
from transduce.text import TokenizerPair, look_up, word_at

NO_ATTENTION: Final = (
    "replace unknown: the model has no encoder-decoder attention, which would say which word of the source an unknown "
    "one stands for: leave it out"
)


def check_unknown_words(model: TrainableModel, tokenizers: TokenizerPair, generation: GenerationConfig) -> None:
    """Look at a model before it is trained, which may have to replace its unknown words.

    Raises:
        BadInputError: It cannot say what they stand for.
    """
    if not generation.replace_unknown or tokenizers.target.knows_all:
        return
    training = model.training
    device = next(model.parameters()).device
    if not has_cross_attention(model.eval(), tokenizers.special, device):
        raise BadInputError(NO_ATTENTION)
    model.train(training)


@final
@dataclass(frozen=True)
class UnknownWords:
    """How unknown symbols are replaced; ``dictionary`` has what source words become, the others are copied."""

    dictionary: Mapping[str, str] = field(default_factory=dict)

    def choose(
        self, tokenizers: TokenizerPair, text: str, ids: Sequence[int], weights: Float[Tensor, "target source"]
    ) -> list[str]:
        """The word for each unknown symbol among an output's ids.

        ``weights`` is how each of them weighs each token of the source ``text``, as ``align`` has it: the word is that
        of the source's token with the largest weight. Neither the end symbol nor white space is a word: the next best.
        """
        words = [word_at(text, span) for span in tokenizers.source.spans(text)]
        candidates = [index for index, word in enumerate(words) if word]
        if not candidates:  # what the tokenizer reads nothing of
            return [text.strip()] * len(ids)
        found = []
        for place, symbol in enumerate(ids):
            if symbol == tokenizers.special.unknown:
                best = candidates[int(weights[place, candidates].argmax())]
                found.append(look_up(words[best], self.dictionary))
        return found
