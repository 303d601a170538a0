"""`ember pipeline lint`."""

import json

import click


@click.command()
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--strict", is_flag=True, help="Exit status 1 if there is an error or a warning.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON, one line for each run.")
def lint(config: str, strict: bool, as_json: bool) -> int:
    """Look for trouble in the stimuli of CONFIG before a run does: as texts, and as tokens of the model.

    Normal form and order of marks, two encodings of one letter, presentation forms, tatweel and invisible marks,
    white space at the end, labels that prompts give away, one last token everywhere, uneven classes, labels that the
    number of tokens tells, spellings of control tokens, duplicates. Nothing is changed; `stimuli.normalize` does that
    where you ask for it. An error is what a run would refuse in its stimuli; captures, layers and positions are what
    `ember pipeline plan` checks. Exit status 0 whatever is found, unless --strict.

    \b
    Example:
      ember pipeline lint configs/roots.yaml
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.config import load_configs
    from pipelines.lint import lint as look

    status = 0
    for one in load_configs(config):
        report = look(one)
        click.echo(json.dumps(report.plain, ensure_ascii=False) if as_json else "\n".join(report.lines()))
        status = max(status, report.strict_status if strict else 0)
    return status
