"""Every family by Hugging Face transformers in float64: Ember's own reference (reference Python only)."""

from ember.validation.hugging_face import Transformers

__all__ = ["Transformers"]
