"""Geometry of hidden states: likeness of layers and labels, maps, divergence, and fertility of the tokenizer.

from pipelines.geometry import linear_cka, rsa, distances, label_distances, pca_map
pipelines.geometry.measure("outputs/roots")      # all of it, into outputs/roots/geometry
"""

from pipelines.geometry.fertility import Fertility, word_fertility
from pipelines.geometry.maps import Divergence, Map, divergence, pca_map
from pipelines.geometry.similarity import distances, label_distances, linear_cka, rsa, svcca
from pipelines.geometry.sweep import Geometry, measure

__all__ = [
    "Divergence",
    "Fertility",
    "Geometry",
    "Map",
    "distances",
    "divergence",
    "label_distances",
    "linear_cka",
    "measure",
    "pca_map",
    "rsa",
    "svcca",
    "word_fertility",
]
