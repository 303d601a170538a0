"""Every error that Ember raises on purpose.

    EmberError                     exit status 1
    ├── GGUFError                  a file that is not what a GGUF must be: `<file>: <field>: <what> (offset …)`
    ├── UnsupportedError           well-formed, but an architecture, tokenizer, quantisation or scaling not run here
    ├── TokenizerError             a vocabulary that cannot be built, or ids outside it
    ├── ModelError                 metadata and tensors of a file that do not make the model they announce
    ├── NumericsError              a value that is not finite, naming the first layer where it appeared
    ├── GuardError                 the smoke guard: predictions no better than chance
    └── InputError                 exit status 2: a prompt, id, layer, site or option that cannot be served

`pipelines.errors` continues the tree. A message has three parts: what was found (which file, key, tensor, layer or
sample), what was expected, what to do.
"""

from typing import ClassVar


class EmberError(Exception):
    """Base of all errors raised on purpose; the command line prints the message and exits with `exit_status`."""

    exit_status: ClassVar[int] = 1


class GGUFError(EmberError):
    """A file that cannot be a GGUF: magic, counts, lengths, offsets or types that contradict the bytes."""


class UnsupportedError(EmberError):
    """A valid file that Ember does not run; the message names the thing and lists what is supported."""


class TokenizerError(EmberError):
    """A vocabulary that contradicts itself, or token ids outside it."""


class ModelError(EmberError):
    """Metadata and tensors that do not fit each other or the family."""


class NumericsError(EmberError):
    """A value that is not finite; names the first layer where it appeared."""


class GuardError(EmberError):
    """The smoke guard found the model's predictions no better than chance."""


class InputError(EmberError):
    """Something the caller gave that cannot be served."""

    exit_status = 2
