"""The HTTP service: models behind LibreTranslate's, DeepL's and an own interface, and a page to try them."""

from transduce.serving.keys import add_key
from transduce.serving.server import serve
from transduce.serving.settings import Limits, ServedModel, ServeSettings, read_models

__all__ = ["Limits", "ServeSettings", "ServedModel", "add_key", "read_models", "serve"]
