"""The decoders as compiled kernels, operation for operation those of `ember.gguf.formats`, so bit for bit.

Each takes `raw` uint8 [bytes] and `out` float32 [values], both flat. Small integers become floats by way of int32,
which is exact; half-precision scales by `half_to_float`, which is exact for all 65,536 of them. A module is compiled,
or loaded from the cache, when it is imported: `ember.gguf.decode_fast` imports those that a file needs.
"""
