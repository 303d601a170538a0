"""Which texts a run scores: the expected ones and the choices of every stimulus, cut into tokens in the client.

What a continuation's tokens are is the boundary rule of `ember.scoring`; it is applied here, once, with the prompt's
ids as fed, so that the plan knows every row and refuses what does not fit.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ember.card import ModelCard
from ember.errors import InputError
from ember.scoring import RULE, cut_continuations
from pipelines.config.answers import EXPECTED, GenerateConfig, ScoreConfig
from pipelines.continuations import NOTHING, ContinuationTable, SampleTexts
from pipelines.errors import ConfigError
from pipelines.plan_checks import refusal
from pipelines.stimuli.expect import TRIM
from pipelines.stimuli.record import Stimulus
from pipelines.stimuli.templates import Template, fill, parse_template
from pipelines.tokenized import Tokenized

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer

GREEDY: Final = "likeliest token, lowest id among equal ones"
DRAWN: Final = "temperature, top_k, top_p, softmax, inverse CDF; Philox keyed by (seed, stimulus_id)"


def plan_scores(
    config: ScoreConfig | None,
    samples: Sequence[Tokenized],
    tokenizer: "Tokenizer",
    card: ModelCard,
    *,
    parse_special: bool,
) -> ContinuationTable:
    """Cut everything that is to be scored, in the order of `samples`.

    Raises ConfigError naming the stimuli whose texts are empty, lack a label, cannot be encoded or do not fit the
    context behind their prompt.
    """
    if config is None or not config.continues:
        return ContinuationTable.of([NOTHING] * len(samples))
    choices = _all_choices(config, [sample.stimulus for sample in samples])
    _refuse_nothing_expected(config, samples)
    found, bad = [], []
    for sample, texts in zip(samples, choices, strict=True):
        expected = sample.stimulus.expected if config.expected else None
        given = [*([] if expected is None else [expected]), *texts]
        try:
            cuts = cut_continuations(
                tokenizer, sample.stimulus.prompt, sample.tokens.tolist(), given, parse_special=parse_special
            )
        except InputError as error:
            bad.append(f"{sample.stimulus.id!r} ({error})")
            continue
        first = None if expected is None else cuts.pop(0)
        found.append(SampleTexts(first, texts, tuple(cuts)))
    if bad:
        raise refusal("with a text that cannot be scored", bad, "change their expected texts or score.choices")
    _refuse_long(samples, found, card)
    return ContinuationTable.of(found)


def extra_rows(table: ContinuationTable) -> list[int]:
    """For each sample, token rows that its continuations add at most: all tokens but the last of each."""
    lengths = (table.starts[1:] - table.starts[:-1] - 1).tolist()
    firsts = table.firsts.tolist()
    return [sum(lengths[first:end]) for first, end in pairwise(firsts)]


def scoring_record(config: ScoreConfig | None, table: ContinuationTable) -> dict[str, Any] | None:
    """Say for the manifest what was scored and by which rule; None where nothing was."""
    if config is None or not config.measures:
        return None
    return {
        "boundary_rule": RULE,
        "choices": list(config.choices),
        "continuations": len(table.merged),
        "expected": config.expected,
        "logarithm": "natural",
        "merged": int(table.merged.sum()),
        "top_k": config.top_k,
    }


def generation_record(config: GenerateConfig | None, score: ScoreConfig | None) -> dict[str, Any] | None:
    """Say for the manifest how tokens were chosen and continuations judged; None where nothing was generated."""
    if config is None:
        return None
    return config.model_dump(mode="json") | {
        "chosen": DRAWN if config.samples else GREEDY,
        "normalize": [TRIM, *(score.normalize if score else ())],
    }


def score_notes(config: ScoreConfig | None, table: ContinuationTable) -> list[str]:
    """Say what deserves a look in what is scored: one line per matter."""
    notes = []
    if config is not None and config.expected and (absent := int((~table.expected).sum())):
        notes.append(f"{absent} stimuli have no expected text, so their score is absent")
    if merged := int(table.merged.sum()):
        notes.append(
            f"{merged} of {len(table.merged)} scored texts merge with the end of their prompt when both are tokenised "
            "as one: they are scored as fragments and flagged merged (docs/reference/scoring.md); a prompt that ends "
            "where a word does, and a text that begins with the space, avoid it"
        )
    return notes


def _all_choices(config: ScoreConfig, stimuli: Sequence[Stimulus]) -> list[tuple[str, ...]]:
    templates = [parse_template(text, None) for text in config.choices]
    named = list(dict.fromkeys(slot for template in templates for slot in template.slots))
    found, lacking = [], []
    for stimulus in stimuli:
        values = _values(stimulus)
        absent = [slot for slot in named if slot not in values]
        if absent:
            lacking.append(f"{stimulus.id!r} ({', '.join(absent)})")
        else:
            found.append(_filled(templates, values))
    if lacking:
        raise refusal("without what score.choices names", lacking, "give them these labels, or change score.choices")
    return found


def _values(stimulus: Stimulus) -> dict[str, str]:
    expected = {} if stimulus.expected is None else {EXPECTED: stimulus.expected}
    return stimulus.labels | expected


def _filled(templates: Sequence[Template], values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(fill(template, dict(values)).text for template in templates)


def _refuse_nothing_expected(config: ScoreConfig, samples: Sequence[Tokenized]) -> None:
    if config.expected and all(sample.stimulus.expected is None for sample in samples):
        raise ConfigError(
            "score.expected is true, but no stimulus has an expected text; give them one (`expect`, or `expected`), "
            "or remove score.expected"
        )


def _refuse_long(samples: Sequence[Tokenized], found: Sequence[SampleTexts], card: ModelCard) -> None:
    room, long = card.context_length, []
    for sample, texts in zip(samples, found, strict=True):
        longest = max((len(cut.tokens) for cut in texts.all_cuts), default=0)
        if len(sample.tokens) + longest > room:
            long.append(f"{sample.stimulus.id!r} ({len(sample.tokens)} tokens + {longest} to score)")
    if long:
        raise refusal(
            f"over the model's context of {room} tokens", long, "shorten them or what is scored: nothing is cut off"
        )
