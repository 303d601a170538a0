"""The sections `generate` and `score`."""

import pytest

from pipelines.config import identity, resolved


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("generate: {max_tokens: 2, temperature: -0.5}", "generate.temperature: found -0.5, expected at least 0"),
        ("generate: {max_tokens: 2, temperature: .nan}", "generate.temperature: found .nan, expected a finite number"),
        ("generate: {max_tokens: 2, temperature: 1, top_p: 1.5}", "generate.top_p: found 1.5, expected at most 1"),
        ("generate: {max_tokens: 2, temperature: 1, top_k: -1}", "generate.top_k: found -1, expected at least 0"),
        ("generate: {max_tokens: 2, temperature: 1, seed: -1}", "generate.seed: found -1, expected at least 0"),
        ("generate: {max_tokens: 2, seed: 3}", "found seed without a temperature"),
        ("generate: {max_tokens: 2, top_k: 3, top_p: 0.5}", "found top_k, top_p without a temperature"),
        ('generate: {max_tokens: 2, stop: [""]}', "found an empty text in the list"),
        ("generate: {max_tokens: 2, stop: [a, a]}", "found 'a' twice"),
        ("score: {}", "score: nothing to score"),
        ("score: {choices: [a, b, a]}", "found 'a' twice"),
        ("score: {choices: ['{root']}", "lone '{'"),
        ("score: {choices: ['{}']}", "empty slot"),
        ("score: {top_k: -1}", "score.top_k"),
        ("score: {normalize: [strip]}", "expected nfc, strip_diacritics, strip_tatweel"),
        ("score: {expected: true, normalize: [nfc]}", "score.normalize without `generate`"),
        ("score: {top_k: 1, normalize: [nfc, nfc]}", "a step is listed twice"),
    ],
)
def test_what_cannot_be_is_refused(problems, minimal, line, told):
    (said,) = problems(minimal + line + "\n")
    assert told in said


def test_greedy_is_written_out(load, minimal):
    config = load(minimal + "generate: {max_tokens: 2}\n")
    assert resolved(config)["generate"] == {
        "max_tokens": 2, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0, "stop": [],
    }  # fmt: skip
    assert not config.generate.samples


def test_the_seed_belongs_to_the_run(load, minimal):
    """It is 0 if nothing else is said, and what decides values is part of the identity."""
    drawn = minimal + "generate: {max_tokens: 2, temperature: 0.7%s}\n"
    plain, seeded = load(drawn % ""), load(drawn % ", seed: 7")
    assert (plain.generate.seed, seeded.generate.seed) == (0, 7)
    assert identity(plain) != identity(seeded)
    assert identity(plain)["generate"]["seed"] == 0
    for more in (", top_k: 3", ", top_p: 0.5", ", stop: [x]"):
        assert identity(load(drawn % more)) != identity(plain)


def test_what_is_scored_belongs_to_the_run(load, minimal):
    lines = ("score: {expected: true}", "score: {choices: [a, b]}", "score: {choices: [b, a]}", "score: {top_k: 2}", "")
    found = [identity(load(minimal + line + "\n")) for line in lines]
    assert all(a != b for i, a in enumerate(found) for b in found[:i])


def test_scoring_alone_is_something_to_do(load, changed, problems):
    assert load(changed("hooks", "score: {top_k: 3}")).score.top_k == 3
    assert load(changed("hooks", "score: {choices: [' a', ' {root}', '{{x}}']}")).score.choices[1] == " {root}"
    (said,) = problems(changed("hooks", "score: {normalize: [nfc]}"))
    assert "nothing to do" in said
