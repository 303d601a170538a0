"""How right Ember is: comparisons with references, and what they have shown so far.

`rung_of` answers from data that ships with the package and needs neither an engine nor a reference.
"""

from ember.validation.rungs import Shown as Shown
from ember.validation.rungs import rung_of as rung_of
