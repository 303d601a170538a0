"""A model opened for looking inside: the Python front door of the instrument."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Any, Final, Literal

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from ember import capture as requests
from ember import numerics
from ember.assets_path import resolve_model
from ember.capture import Captures, Finding
from ember.card import BoundModel
from ember.engine.choosing import Listener
from ember.engine.invariance import rows_keep_bits
from ember.engine.runner import predictions, run_unit
from ember.engine.session import Session
from ember.engine.stage import least_private
from ember.engine.traced import traced
from ember.engine.tracer import Tracer
from ember.errors import InputError, ModelError, NumericsError
from ember.generate import Generation, OnToken, TextStream, check_stop, sampling_of
from ember.gguf import GGUFFile, open_gguf
from ember.hooks import Experiment, ModelContext, TracingState
from ember.hooks.binding import Given, bind_experiments
from ember.hooks.contexts import context_of
from ember.hooks.runner import Runner
from ember.models import bind_model
from ember.positions import Position
from ember.provenance import tensor_contract
from ember.resources import find_resources
from ember.scoring import ScoredContinuation, make_request
from ember.tokenizer import Tokenizer, load_tokenizer
from ember.trace import Event, Trace, traced_work
from ember.units import cut_units, plan_order
from ember.work import AttentionWork, CaptureWork, Floats, InterventionWork, NonFinite, Tokens, UnitResult, UnitWork

UNIT_ROWS: Final = 4096
RESIDENT_SHARE: Final = 0.25
"""Part of the free memory that decoded weights may take when no budget is given."""

Route = Literal["auto", "reference", "fast"]


class Model:
    """One model in this process. Made by `ember.open`."""

    def __init__(self, file: GGUFFile, bound: BoundModel, session: Session) -> None:
        """Use `ember.open`."""
        self.file = file
        self._bound = bound
        self._session = session
        card = bound.card
        self.card = card
        self.architecture = card.architecture
        self.n_layers = card.n_layers
        self.hidden_size = card.hidden_size
        self.vocab_size = card.vocab_size
        self.context_length = card.context_length

    @property
    def route(self) -> str:
        """`reference` or `fast`: `auto` resolved."""
        return self._session.route

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's own tokenizer. Raises UnsupportedError or TokenizerError where it has none that runs here."""
        tokenizer = load_tokenizer(self.file)
        if tokenizer.vocab_size > self.vocab_size:
            raise ModelError(
                f"{self.file.path}: the tokenizer has {tokenizer.vocab_size} tokens, "
                f"but the embedding only {self.vocab_size} rows"
            )
        return tokenizer

    def notes(self) -> list[str]:
        """Say what about the file deserves a look: keys that nobody read, oddities of its vocabulary."""
        return [*self.card.notes(), *self.tokenizer.warnings]

    def capture(
        self,
        prompts: Sequence[str] | None = None,
        *,
        tokens: Sequence[Sequence[int]] | None = None,
        site: str | Sequence[str] = "after_layer",
        layers: str | Sequence[int] = "all",
        position: str | int | Position = "last",
        experiments: Sequence[Given] = (),
        observe: str | None = None,
        interventions: Sequence[InterventionWork] = (),
    ) -> Captures:
        """Hidden states of prompts (texts, or token ids taken as they are) at sites, layers and positions.

        Arrays are float32 [rows, layers, hidden], one row a prompt for a single position; [rows, hidden] for
        before_logits and [rows, vocab] for after_logits. Layers are in the order given. `experiments` are instances for
        a single prompt, else classes or factories, called once a prompt. With interventions, or experiments that change
        values, `observe` must say whether the captured rows are those `before` or `after` what acts at their own site.
        Raises InputError for what does not exist, ExperimentFailure where a hook raised and NumericsError where a value
        is not finite.
        """
        ids = self._ids(prompts, tokens)
        sites = requests.check_sites(site)
        chosen = requests.check_layers(layers, self.n_layers, sites)
        selector = requests.check_position(position)
        bound = bind_experiments(experiments, len(ids))
        changed = bool(interventions) or any(one.mutates for mine in bound for one in mine)
        side = requests.check_observe(observe, changed=changed)
        works = requests.capture_works(sites, chosen, selector, ids, side)
        acting = requests.check_interventions(interventions, ids, self.card, works)
        gathered, findings = self._run_all(ids, works, acting, bound)
        order = np.argsort(np.argsort(chosen))
        arrays = {
            work.site: _arrange(rows, None if work.layers == (-1,) else order)
            for work, rows in zip(works, gathered, strict=True)
        }
        named = {work.site: chosen if work.layers != (-1,) else work.layers for work in works}
        origin = self._provenance(works, selector)
        if acting or bound:
            origin["acting"] = requests.acting_record(acting, bound, side)
        return Captures(arrays, requests.row_records(works[0], ids), named, origin, findings)

    def logits(self, prompts: Sequence[str] | None = None, *, tokens: Sequence[Sequence[int]] | None = None) -> Floats:
        """Logits after the last token of each prompt: float32 [prompts, vocab]."""
        return self.capture(prompts, tokens=tokens, site="after_logits")["after_logits"]

    def generate(
        self,
        prompt: str | None = None,
        *,
        tokens: Sequence[int] | None = None,
        max_tokens: int = 16,
        stop_at_eos: bool = True,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: Sequence[str] = (),
        experiments: Sequence[Given] = (),
        interventions: Sequence[InterventionWork] = (),
        on_token: OnToken | None = None,
    ) -> Generation:
        """Continue one prompt by at most `max_tokens` tokens, to the end-of-text token if `stop_at_eos`.

        Temperature 0 is greedy; else tokens are drawn from random numbers that `seed` decides (one is drawn and
        reported where none is given). `stop` texts end the continuation and are no part of its text. `on_token` is told
        each token and the text that became complete. Raises ExperimentFailure where a hook raised, NumericsError where
        a value is not finite, InputError for what cannot be served.
        """
        ids = self._ids(None if prompt is None else [prompt], None if tokens is None else [tokens])
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int | np.integer) or max_tokens < 1:
            raise InputError(f"max_tokens {max_tokens!r}: expected an integer of at least 1")
        self._check_context(ids, max_tokens)
        sampling = sampling_of(temperature, top_k, top_p, seed, [""])
        acting = requests.check_interventions(interventions, ids, self.card)
        stop_ids = self.tokenizer.stop_ids if stop_at_eos else ()
        stream = TextStream(self.tokenizer, check_stop(stop), stop_ids, on_token)
        work = UnitWork(tuple(ids), max_tokens=max_tokens, stop_ids=stop_ids, interventions=acting, sampling=sampling)
        result = self._run_whole(work, bind_experiments(experiments, 1), stream.take)
        made = result.produced[0]
        findings = [(name, found) for _, name, found in result.findings]
        return Generation(
            list(made.token_ids), stream.finish(), made.stopped, sampling.seed if sampling else None, findings
        )

    def score(
        self,
        prompts: Sequence[str] | None = None,
        continuations: Sequence[Sequence[str]] = (),
        *,
        tokens: Sequence[Sequence[int]] | None = None,
        top_k: int = 0,
        interventions: Sequence[InterventionWork] = (),
    ) -> list[list[ScoredContinuation]]:
        """How likely each of a prompt's `continuations` is after it, token by token: one list of them for each prompt.

        Which tokens a continuation has is the rule of `ember.scoring`. `top_k` adds the likeliest first tokens. Raises
        InputError for what cannot be scored and NumericsError where a value is not finite.
        """
        ids = self._ids(prompts, tokens)
        request = make_request(self.tokenizer, prompts, ids, continuations, context=self.context_length, top_k=top_k)
        acting = requests.check_interventions(interventions, ids, self.card)
        private = least_private(UnitWork(tuple(ids), interventions=acting), [False] * len(ids))
        found: dict[int, list[ScoredContinuation]] = {}
        for chosen, work in request.units(UNIT_ROWS, private):
            mine = tuple(requests.select_acting(one, chosen) for one in acting)
            result = self._run_whole(replace(work, interventions=mine), names=chosen)
            found |= zip(chosen, request.answers(chosen, result), strict=True)
        return [found[prompt] for prompt in range(len(ids))]

    def trace(
        self,
        prompt: str | None = None,
        *,
        tokens: Sequence[int] | None = None,
        max_tokens: int = 0,
        stop_at_eos: bool = True,
        experiments: Sequence[Given] = (),
        values: bool = False,
        emit: Callable[[Event], None] | None = None,
    ) -> Trace:
        """Journal of every operation of one prompt's prefill and, with `max_tokens`, of its greedy continuation.

        `values` adds norm and fingerprint of every output. `emit` is given the events as they come, in place of a list.
        Bits and kernels are those of the same run without a trace. Raises as `generate` does.
        """
        ids = self._ids(None if prompt is None else [prompt], None if tokens is None else [tokens])
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int | np.integer) or max_tokens < 0:
            raise InputError(f"max_tokens {max_tokens!r}: expected an integer of at least 0")
        self._check_context(ids, max_tokens)
        events: list[Event] = []
        tracer = Tracer(emit or events.append, route=self.route, residence=self._session.residence, values=values)
        work = traced_work(ids[0], max_tokens, self.tokenizer.stop_ids if max_tokens and stop_at_eos else ())
        result = self._run_whole(work, bind_experiments(experiments, 1), tracer=tracer)
        tracer.finish()
        return Trace.of(ids[0], events, result)

    def attention(
        self,
        prompts: Sequence[str] | None = None,
        *,
        tokens: Sequence[Sequence[int]] | None = None,
        layers: str | Sequence[int] = "all",
        position: str | int | Position = "last",
    ) -> list[Floats]:
        """Attention weights of chosen query positions: for each row float32 [layers, heads, position + 1].

        Rows are those of `capture` at the same position. Positions outside a layer's window get 0. Recomputed in
        float64 from the queries and keys that the run used.
        """
        ids = self._ids(prompts, tokens)
        chosen = requests.check_layers(layers, self.n_layers, ["after_attention"])
        places = requests.capture_works(["after_attention"], chosen, requests.check_position(position), ids)[0]
        found = self._run_whole(UnitWork(tuple(ids), attention=(AttentionWork(places.layers, places.positions),)))
        order = np.argsort(np.argsort(chosen))
        return [rows[order] for rows in found.attention[0]]

    def logit_lens(self, hidden: Floats, top_k: int = 5) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Most likely tokens when hidden states [..., hidden] go through the final norm and the head at once.

        Returns ids and natural log-probabilities, [..., top_k] each, likeliest first (nostalgebraist 2020, "the logit
        lens"). For `after_layer` of the last layer these are the model's own predictions.
        """
        rows = np.ascontiguousarray(hidden, np.float32).reshape(-1, hidden.shape[-1])  # [..., D] -> [T, D]
        if rows.shape[1] != self.hidden_size or isinstance(top_k, bool) or not 1 <= top_k <= self.vocab_size:
            raise InputError(
                f"logit_lens of rows {rows.shape[1]} wide and top_k {top_k!r}: expected {self.hidden_size} wide and "
                f"1 to {self.vocab_size}"
            )
        with self._session.evaluating():
            top = predictions(self._bound, self._session.backend, rows, top_k)
        shape = (*hidden.shape[:-1], top_k)
        ids = np.array([one.token_ids for one in top], np.int64).reshape(shape)
        return ids, np.array([one.log_probabilities for one in top], np.float64).reshape(shape)

    def run_unit(
        self,
        work: UnitWork,
        experiments: Sequence[Sequence[Experiment]] = (),
        listener: Listener | None = None,
    ) -> UnitResult:
        """Run one unit as it is: the worker's entrance. Token ids and positions have been checked by the plan.

        `experiments` are those of each prompt; `listener` is told every new token and may end a prompt. Prompts that
        failed are named in the result.
        """
        with self._session.evaluating():
            return run_unit(self._bound, self._session.backend, work, self._runners(experiments), listener)

    def _run_whole(
        self,
        work: UnitWork,
        experiments: Sequence[Sequence[Experiment]] = (),
        listener: Listener | None = None,
        names: Sequence[int] = (0,),
        tracer: Tracer | None = None,
    ) -> UnitResult:
        """Run one unit; raises for the first prompt that failed, by its number in `names`."""
        model, be, tracing = self._bound, self._session.backend, TracingState.DISABLED
        if tracer is not None:
            (model, be), tracing = traced(model, be, tracer), TracingState.ENABLED
        runners = self._runners(experiments, tracing)
        with self._session.evaluating():
            result = run_unit(model, be, work, runners, listener)
        for prompt in sorted(result.hook_failures):
            failure = runners[prompt].failure
            assert failure is not None, "the result names it"
            raise failure from failure.__cause__
        for prompt, why in sorted(result.failures.items()):
            raise _not_finite(names[prompt], why)
        return result

    def _runners(
        self, experiments: Sequence[Sequence[Experiment]], tracing: TracingState = TracingState.DISABLED
    ) -> dict[int, Runner]:
        return {prompt: Runner(mine, self.context, tracing) for prompt, mine in enumerate(experiments) if mine}

    @cached_property
    def context(self) -> ModelContext:
        """What experiments are told about this model."""
        return context_of(self.card)

    @cached_property
    def keeps_bits(self) -> bool:
        """Whether a prompt's bits are independent of its company here (contract 2), by the self-test."""
        shapes = [info.shape for info in self.file.tensors.values() if len(info.shape) == 2]
        with self._session.limits():
            return rows_keep_bits((shape[0], shape[1]) for shape in shapes)

    def numerics(self) -> dict[str, Any]:
        """Return the numerics record: route, contract, BLAS, threads, processor, versions."""
        with self._session.limits():
            return numerics.record(self.route, self._session.threads, keeps_bits=self.keeps_bits)

    def contract(self, captures: Sequence[CaptureWork], *, decodes: bool = False) -> dict[str, Any]:
        """Return the tensor contract of captures: per site and layer, side of the residual, norm and tensors."""
        if decodes:
            self._session.backend.for_decode()  # compiles its kernels here, before workers would each do so
        return tensor_contract(self._bound, self.file, captures, self._session.describe(), decodes=decodes)

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ember.Model {self.architecture} {self.n_layers}x{self.hidden_size} {self.route} {self.file.path}>"

    def _ids(self, prompts: Sequence[str] | None, tokens: Sequence[Sequence[int]] | None) -> list[Tokens]:
        if (prompts is None) == (tokens is None):
            given = "both are" if prompts is not None else "neither is"
            raise InputError(f"{given} given: give either prompts (texts) or tokens (lists of ids)")
        if isinstance(prompts, str):
            raise InputError("prompts is one text; give a list of texts")
        ids = self.tokenizer.encode_ids(_texts(prompts)) if prompts is not None else self._given(tokens)
        if not ids:
            raise InputError("no prompts: give at least one")
        for index, prompt in enumerate(ids):
            if len(prompt) == 0:
                raise InputError(f"prompt {index} is empty: it has no token, so there is no state to take")
        self._check_context(ids, 0)
        return ids

    def _given(self, tokens: Sequence[Sequence[int]] | None) -> list[Tokens]:
        return [
            _check_ids(index, given, self.vocab_size) for index, given in enumerate(() if tokens is None else tokens)
        ]

    def _check_context(self, ids: list[Tokens], max_tokens: int) -> None:
        for index, prompt in enumerate(ids):
            if len(prompt) + max_tokens > self.context_length:
                more = f" and {max_tokens} to generate" if max_tokens else ""
                raise InputError(
                    f"prompt {index} has {len(prompt)} tokens{more}; the model's context is {self.context_length}; "
                    "nothing is truncated: shorten the prompt"
                )

    def _run_all(
        self,
        ids: list[Tokens],
        works: tuple[CaptureWork, ...],
        acting: tuple[InterventionWork, ...],
        experiments: list[tuple[Experiment, ...]],
    ) -> tuple[list[Floats], list[Finding]]:
        """Run all prompts in units; per capture, rows [layers, rows, width] in the caller's order, and findings."""
        order = plan_order(ids)
        counts = [1 if works[0].pooled else len(at) for at in works[0].positions]
        starts = np.concatenate([[0], np.cumsum(counts)])
        out: list[Floats | None] = [None] * len(works)
        findings: list[Finding] = []
        whole = UnitWork(tuple(ids), interventions=acting)
        private = least_private(whole, [bool(experiments)] * len(ids))
        ordered_private = None if private is None else [private[i] for i in order]
        for first, end in cut_units([ids[i] for i in order], UNIT_ROWS, ordered_private):
            chosen = order[first:end]
            unit = UnitWork(
                tuple(ids[i] for i in chosen),
                tuple(requests.select(w, chosen) for w in works),
                interventions=tuple(requests.select_acting(w, chosen) for w in acting),
            )
            result = self._run_whole(unit, [experiments[i] for i in chosen] if experiments else (), names=chosen)
            findings += [(chosen[prompt], name, found) for prompt, name, found in result.findings]
            places = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in chosen])
            for w, rows in enumerate(result.captures):
                gathered = out[w]
                if gathered is None:
                    gathered = out[w] = np.empty((rows.shape[0], int(starts[-1]), rows.shape[2]), np.float32)
                gathered[:, places] = rows
        # by prompt; those of one prompt stay in the order of its experiments
        return [rows for rows in out if rows is not None], sorted(findings, key=lambda finding: finding[0])

    def _provenance(self, works: tuple[CaptureWork, ...], position: Position) -> dict[str, Any]:
        return {
            "file": str(self.file.path),
            "model_sha256": self.file.sha256(),
            "model": self.card.record(),
            "tokenizer": self.tokenizer.record() if "tokenizer.ggml.model" in self.file.metadata else None,
            "position": {"kind": position.kind, "value": position.value, "part": position.part},
            "tensor_contract": self.contract(works),
            "numerics": self.numerics(),
        }


def open_model(
    path: str | PathLike[str],
    *,
    route: Route = "auto",
    threads: int | None = None,
    memory_budget: int | None = None,
) -> Model:
    """Open a GGUF model (or `builtin:sarf-nano`).

    `route`: `reference` is plain NumPy and defines what is right; `fast` needs numba; `auto` takes `fast` where it can.
    `threads`: BLAS threads, by default all usable cores. `memory_budget`: bytes that decoded weights may keep; weights
    beyond it are decoded anew for every unit, with the same bits. Raises GGUFError, UnsupportedError, ModelError.
    """
    if threads is not None and (isinstance(threads, bool) or threads < 1):
        raise InputError(f"threads {threads!r}: expected an integer of at least 1")
    file = open_gguf(resolve_model(str(path)))
    bound = bind_model(file)
    lent = find_resources()
    budget = int(lent.memory * RESIDENT_SHARE) if memory_budget is None else memory_budget
    controller = threadpoolctl.ThreadpoolController()
    return Model(file, bound, Session.make(file, route, threads or lent.cpus, budget, controller))


def _texts(prompts: Sequence[str]) -> list[str]:
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            raise InputError(f"prompt {index}: found {type(prompt).__name__}, expected a text (str)")
        if not prompt:
            raise InputError(f"prompt {index} is empty; for the state of a lone BOS give tokens=[[id]]")
    return list(prompts)


def _check_ids(index: int, given: Sequence[int], vocab: int) -> Tokens:
    ids = np.asarray(given)
    if ids.size == 0:
        return np.empty(0, np.int32)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer) or any(isinstance(one, bool) for one in given):
        raise InputError(f"tokens of prompt {index}: found {ids.dtype} of shape {ids.shape}, expected a list of ids")
    wrong = ids[(ids < 0) | (ids >= vocab)]
    if len(wrong):
        raise InputError(f"tokens of prompt {index}: id {wrong[0]} is outside the vocabulary 0 to {vocab - 1}")
    return ids.astype(np.int32)


def _arrange(rows: Floats, order: NDArray[np.int64] | None) -> Floats:
    if order is None:
        return np.ascontiguousarray(rows[0])  # [rows, width]
    return np.ascontiguousarray(rows[order].transpose(1, 0, 2))  # [layers, rows, width] -> [rows, layers, width]


def _not_finite(prompt: int, why: NonFinite) -> NumericsError:
    where = f"layer {why.layer}, {why.site}" if why.layer >= 0 else why.site
    return NumericsError(
        f"prompt {prompt}: a value that is not finite first appeared at {where}; its states mean nothing"
    )
