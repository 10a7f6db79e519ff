"""Other libraries' model formats."""

from transduce.interop.ctranslate2 import export_ctranslate2

__all__ = ["export_ctranslate2"]
