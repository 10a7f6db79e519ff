"""Other libraries' model formats."""

from transduce.interop.ctranslate2 import export_ctranslate2
from transduce.interop.fairseq import read_fairseq

__all__ = ["export_ctranslate2", "read_fairseq"]
