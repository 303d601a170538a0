"""`ember pipeline plan`."""

import json

import click


@click.command()
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, one line for each run.")
def plan(config: str, as_json: bool) -> None:
    """Show what CONFIG would do, without running it.

    Tokenises all prompts with the model's tokenizer and finds what would stop the run: prompts over the
    context, spans that are not there, a disk that is too small.

    \b
    Example:
      ember pipeline plan configs/roots.yaml
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.config import load_configs
    from pipelines.plan import make_plan
    from pipelines.plan_report import plan_lines, plan_record

    for one in load_configs(config):
        record = plan_record(make_plan(one))
        click.echo(json.dumps(record, ensure_ascii=False) if as_json else "\n".join(plan_lines(record)))
