"""`zero_layer_output`: the model without one layer's attention, MLP, or whole output."""

import re
from typing import Final

from ember.errors import InputError
from ember.hooks.access import TensorAccess
from ember.hooks.contexts import LayerContext, ModelContext
from ember.hooks.experiment import Experiment

OUTPUTS: Final = ("attention", "mlp", "layer")


class ZeroLayerOutput(Experiment):
    """Sets one site's tensor of one layer to zero, in the prefill and in every decode evaluation.

    `spec` is `LAYER:OUTPUT`, as in `3:attention`: `attention` and `mlp` are contributions to the residual stream, which
    then passes by unchanged; `layer` is the residual stream itself as it leaves the layer. A negative layer counts from
    the end. Raises InputError for other specs, and in `check_model` and `on_model_loaded` for a layer that the model
    does not have.
    """

    name = "zero_layer_output"

    def __init__(self, spec: str) -> None:
        self._layer, self._output = parse(spec)

    def check_model(self, ctx: ModelContext) -> None:
        """See `Experiment.check_model`: whether there is such a layer."""
        if not -ctx.n_layers <= self._layer < ctx.n_layers:
            raise InputError(
                f"layer {self._layer} does not exist: the model has {ctx.n_layers} layers; use 0 to "
                f"{ctx.n_layers - 1}, or -1 to -{ctx.n_layers} from the end"
            )

    def on_model_loaded(self, ctx: ModelContext) -> None:
        """See `Experiment.on_model_loaded`: resolves the layer."""
        self.check_model(ctx)
        self._layer %= ctx.n_layers

    def after_attention(self, ctx: LayerContext, contribution: TensorAccess) -> None:
        """See `Experiment.after_attention`."""
        self._act("attention", ctx, contribution)

    def after_mlp(self, ctx: LayerContext, contribution: TensorAccess) -> None:
        """See `Experiment.after_mlp`."""
        self._act("mlp", ctx, contribution)

    def after_layer(self, ctx: LayerContext, hidden: TensorAccess) -> None:
        """See `Experiment.after_layer`."""
        self._act("layer", ctx, hidden)

    def _act(self, output: str, ctx: LayerContext, tensor: TensorAccess) -> None:
        if output == self._output and ctx.layer == self._layer:
            tensor.zero()


def parse(spec: str) -> tuple[int, str]:
    """Return layer and output of `LAYER:attention|mlp|layer`. Raises InputError."""
    found = re.fullmatch(r"(-?[0-9]{1,9}):([a-z]+)", spec) if isinstance(spec, str) else None
    if found is None or found[2] not in OUTPUTS:
        raise InputError(
            f"zero_layer_output: found {spec!r}, expected LAYER:OUTPUT with OUTPUT one of {', '.join(OUTPUTS)}; "
            "for example 3:attention, or -1:mlp for the last layer"
        )
    return int(found[1]), found[2]
