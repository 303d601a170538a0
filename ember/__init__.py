"""Ember: an instrument for looking inside language models that come as GGUF files.

    model = ember.open("model.gguf")
    h = model.capture(["…"], site="after_layer")["after_layer"]     # [prompts, layers, hidden] float32

Importing this package imports nothing else; every name below is fetched when first used.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ember.capture import Captures as Captures
    from ember.errors import EmberError as EmberError
    from ember.generate import Generation as Generation
    from ember.model import Model as Model
    from ember.model import open_model as open
    from ember.scoring import ScoredContinuation as ScoredContinuation
    from ember.tokenizer import Encoding as Encoding
    from ember.tokenizer import Tokenizer as Tokenizer
    from ember.tokenizer import load_tokenizer as load_tokenizer

__version__: Final = "0.1.0"
__all__ = [
    "Captures",
    "EmberError",
    "Encoding",
    "Generation",
    "Model",
    "ScoredContinuation",
    "Tokenizer",
    "__version__",
    "load_tokenizer",
    "open",
]

_HOME: Final = {
    "Captures": "ember.capture:Captures",
    "EmberError": "ember.errors:EmberError",
    "Encoding": "ember.tokenizer:Encoding",
    "Generation": "ember.generate:Generation",
    "Model": "ember.model:Model",
    "ScoredContinuation": "ember.scoring:ScoredContinuation",
    "Tokenizer": "ember.tokenizer:Tokenizer",
    "load_tokenizer": "ember.tokenizer:load_tokenizer",
    "open": "ember.model:open_model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ember' has no attribute {name!r}; it offers {', '.join(__all__)}")
    module, attribute = _HOME[name].split(":")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
