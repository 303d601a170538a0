"""`ember generate`: continue a prompt, or talk."""

import click

import ember
from ember.cli import options
from ember.cli.conversation import Answer, Choices, Conversation, continuation, spelt_out, template_of
from ember.errors import InputError
from ember.hooks.loading import load_experiment


@click.command(
    epilog='Examples: ember generate builtin:sarf-nano "اسم الفاعل من الجذر ك ت ب:";  ember generate chat.gguf --chat '
    "--interactive;  ember generate model.gguf Once --temperature 0.8 --top-p 0.95 --seed 7"
)
@click.argument("model")
@click.argument("prompt", required=False)
@continuation
@click.option("--experiment", "specs", multiple=True, metavar="SPEC", help="NAME or module:Class. May be repeated.")
@click.option("--chat", is_flag=True, help="Put PROMPT in the chat template of the file, which then runs in a sandbox.")
@click.option("--system", metavar="TEXT", help="With --chat: what the model is told first.")
@click.option("--interactive", is_flag=True, help="Answer line after line, from the terminal or a pipe.")
@options.engine
@options.as_json
def generate(
    model: str,
    prompt: str | None,
    choices: Choices,
    specs: tuple[str, ...],
    chat: bool,
    system: str | None,
    interactive: bool,
    route: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Continue PROMPT, token by token as they come: the likeliest ones, or drawn at a temperature.

    With --json one object holds prompt, ids, text, why it ended, the seed, and what experiments found.
    """
    choices.check()
    _check_prompt(prompt, interactive=interactive, experiments=bool(specs))
    experiments = [load_experiment(spec) for spec in specs]
    opened = ember.open(model, route=route, threads=threads)  # type: ignore[arg-type]
    for one in experiments:
        one.check(opened.context)
    template = template_of(opened, chat=chat, system=system)
    options.say_notes(opened.notes())
    conversation = Conversation(opened, choices, template, system)
    if prompt is None:
        from ember.cli.interactive import converse

        converse(conversation, as_json=as_json)
        return
    options.say_notes([note for note in [spelt_out(opened, prompt) if chat else None] if note])
    with options.Line(shown=not as_json) as line:
        answer = conversation.ask(prompt, line.add, experiments)
    _show(answer, as_json=as_json)


def _check_prompt(prompt: str | None, *, interactive: bool, experiments: bool) -> None:
    if interactive and prompt is not None:
        raise InputError("--interactive reads its prompts from the terminal or a pipe: leave PROMPT out")
    if not interactive and prompt is None:
        raise InputError("PROMPT is missing: give a text, or --interactive to type one after the other")
    if interactive and experiments:
        raise InputError(
            "--experiment has a lifecycle of one prompt, and --interactive answers many: leave one of them out"
        )


def _show(answer: Answer, *, as_json: bool) -> None:
    if as_json:
        options.say(options.found_json(answer.record()) + "\n")
        return
    if answer.seed_is_new:
        options.say_notes([f"seed {answer.seed}"])
    if answer.findings:
        told = ", ".join(name for name, _ in answer.findings)
        options.say_notes([f"findings of {told}: --json prints them"])
