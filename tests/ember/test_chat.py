"""Chat templates: text worked out by hand, tokens, one BOS; templates that refuse, fail, hang or reach for Python."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ember.chat import ChatTemplate, encode_chat, read_template, template
from ember.cli.main import cli, run
from ember.errors import EmberError, InputError, ModelError
from ember.gguf import open_gguf
from ember.tokenizer import load_tokenizer
from tests.foundry.tokenizer_files import CONTROL, SPECIALS, byte_level, sentencepiece

CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""SmolLM2's, as its file has it."""
STRICT = """{{ bos_token }}{% set ns = namespace(system='', turns=0) %}
{% for message in messages %}
    {% if message.role == 'system' %}
        {% set ns.system = message.content | trim %}
    {% elif message.role == 'user' %}
        {% if ns.turns % 2 %}{{ raise_exception('two turns of the user in a row') }}{% endif %}
        {% set ns.turns = ns.turns + 1 %}
[INST] {% if ns.system and loop.index <= 2 %}<<{{ ns.system }}>> {% endif %}{{ message.content }} [/INST]
    {%- else %}
        {% set ns.turns = ns.turns + 1 %}
 {{ message.content }}{{ eos_token }}
    {%- endif %}
{% endfor %}
"""
"""In the manner of Llama 2's: BOS, blocks that are trimmed, state kept in a namespace, roles that must alternate."""


def say(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


def rendered(source: str, *turns: tuple[str, str], **variables: str) -> str:
    return ChatTemplate("m.gguf", source, variables).render(say(*(turns or [("user", "hi")])))


def test_chatml_by_hand() -> None:
    assert rendered(CHATML, ("user", "كَتَبَ")) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nكَتَبَ<|im_end|>\n<|im_start|>assistant\n"
    )


def test_chatml_with_a_system_message_and_turns() -> None:
    turns = [("system", "Be brief."), ("user", "a"), ("assistant", "b"), ("user", "c")]
    told = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
    )
    assert rendered(CHATML, *turns) == told + "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    whole = ChatTemplate("m.gguf", CHATML, {}).render(say(*turns[:3]), add_generation_prompt=False)
    assert whole == told


def test_blocks_are_trimmed_and_names_are_given_as_hugging_face_does() -> None:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    turns = [("system", " Be brief.\n"), ("user", "a"), ("assistant", "b"), ("user", "c")]
    assert rendered(STRICT, *turns, **special) == "<s>[INST] <<Be brief.>> a [/INST] b</s>[INST] c [/INST]"
    # a name that the file does not have is nothing, as an undefined name in Jinja is
    assert rendered(STRICT, ("user", "a")) == "[INST] a [/INST]"


def test_what_hugging_face_s_templates_use_is_there() -> None:
    source = (
        "{% for i in [1, 2, 3] %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"
        "|{{ {'جذر': '<كتب>', 'n': [1]} | tojson }}|{{ dict(a=1).a }}"
        "|{% generation %}said{% endgeneration %}|{{ strftime_now('%Y') | length }}"
        "|{{ tools is none }}{{ documents is none }}"
    )
    assert rendered(source) == '12|{"جذر": "<كتب>", "n": [1]}|1|said|4|TrueTrue'


def test_text_comes_back_as_it_was_given() -> None:
    text = "كَتَّبَ ـــ لا 👩🏽‍🚀 \u200f\u202b e\u0301 {{ 1 + 1 }} {% raw %} <b>&amp;\n\n  end "
    assert rendered("{{ messages[0].content }}|", ("user", text)) == text + "|"


def test_a_conversation_that_the_template_refuses() -> None:
    with pytest.raises(InputError, match="refuses this conversation: two turns of the user in a row"):
        rendered(STRICT, ("user", "a"), ("user", "b"))
    with pytest.raises(InputError) as caught:
        rendered("{{ raise_exception('no\x1b[2J\nsystem') }}")
    assert str(caught.value) == "m.gguf: tokenizer.chat_template: the template refuses this conversation: no [2J system"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        # reaching for Python
        ("{{ ''.__class__.__mro__ }}", "SecurityError: access to attribute '__class__'"),
        ("{{ lipsum.__globals__.os.popen('id').read() }}", "SecurityError: access to attribute '__globals__'"),
        ("{{ cycler.__init__.__globals__ }}", "SecurityError: access to attribute '__init__'"),
        ("{{ (raise_exception.__globals__)['sys'] }}", "SecurityError: access to attribute '__globals__'"),
        ("{{ ('%s' | attr('format'))() ~ (''|attr('__class__')).mro() }}", "Error"),
        ("{{ '{0.__class__.__mro__}'.format(1).x.y }}", "SecurityError|UndefinedError"),
        ("{{ messages.append(1) }}", "SecurityError: access to attribute 'append'"),
        ("{{ messages[0].update(role='x') }}", "SecurityError: access to attribute 'update'"),
        ("{{ namespace(__class__=1) }}", "a namespace cannot hold '__class__'"),
        ("{% set ns = namespace() %}{% set ns._x = 1 %}", "a namespace cannot hold '_x'"),
        ("{% include '/etc/passwd' %}", "no loader"),
        # what never ends, and what is never enough
        ("{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "writes more than 4194304 characters"),
        ("{{ range(10 ** 9) | list }}", "Range too big"),
        ("{{ 'a' * 10 ** 10 }}", "more than 512 MiB"),
        ("{{ '%1000000000s' % 'x' }}", "more than 512 MiB"),
        ("{% set x = namespace(s='x') %}{% for i in range(99) %}{% set x.s = x.s ~ x.s %}{% endfor %}", "512 MiB"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself without an end"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "calls itself without an end"),
        # what is wrong
        ("{{ (", "TemplateSyntaxError"),
        ("{{ nobody.x }}", "UndefinedError: 'nobody' is undefined"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_rendered_is_one_error(source: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        rendered(source)
    assert str(caught.value).startswith("m.gguf: tokenizer.chat_template: the template cannot be rendered: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 7 ** (9 ** 9) }}",  # one call into C, which no signal handler of Python's would interrupt
    ],
)
def test_a_template_that_never_ends_is_ended(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "SECONDS", 1)
    began = time.monotonic()
    with pytest.raises(ModelError, match="it takes more than 1 seconds"):
        rendered(source)
    assert time.monotonic() - began < 30


def test_a_process_without_processor_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "PATIENCE", 0.2)
    with pytest.raises(ModelError, match=r"it was not done after 0\.2 seconds"):
        rendered("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")


def test_tighter_limits_of_the_user_are_kept() -> None:
    """Limits of a shell or a batch system cannot be raised again, and need not be."""
    program = (
        "from ember.chat import ChatTemplate; "
        "print(ChatTemplate('m', '{{ messages[0].content }}', {}).render([{'role': 'user', 'content': 'hi'}]))"
    )
    limited = f'ulimit -t 4; ulimit -f 0; ulimit -c 0; exec {sys.executable} -B -c "{program}"'
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("hi\n", "")


def test_a_process_that_cannot_run_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "sandbox.py"
    broken.write_text("import no_such_jinja2")
    monkeypatch.setattr(template, "SANDBOX", broken)
    with pytest.raises(EmberError, match=r"No module named 'no_such_jinja2'.*is jinja2 installed"):
        rendered("x")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(EmberError, match="could not be started"):
        rendered("x")


@pytest.mark.parametrize(
    "message", [{}, {"role": "user"}, {"role": "user", "content": 1}, {"role": "user", "content": "a", "name": "b"}]
)
def test_a_message_is_a_role_and_a_content(message: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="message 0: expected texts under `role` and `content`"):
        ChatTemplate("m.gguf", CHATML, {}).render([message])


# -- files and tokens


def vocabulary(path: Path, source: object, **keys: Any) -> Path:
    """A vocabulary with ChatML's tokens as control tokens."""
    file = byte_level(["a b"], extras=[("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)], words=())
    start, end = file.id_of("<|im_start|>"), file.id_of("<|im_end|>")
    keys = {"bos_token_id": start, "eos_token_id": end, "chat_template": source, "add_bos_token": False} | keys
    # the key of a template is `tokenizer.chat_template`, without `ggml`
    return rename(file.but(**keys).write(path))


def rename(path: Path) -> Path:
    """Give the template its own key: the writer knows only `tokenizer.ggml.…`. (Nothing here has a tensor to move.)"""
    raw = path.read_bytes()
    old, new = b"tokenizer.ggml.chat_template", b"tokenizer.chat_template"
    length = len(old).to_bytes(8, "little") + old
    if length in raw:
        path.write_bytes(raw.replace(length, len(new).to_bytes(8, "little") + new))
    return path


def test_control_tokens_of_a_template_become_tokens(tmp_path: Path) -> None:
    file = open_gguf(vocabulary(tmp_path / "v.gguf", CHATML))
    tokenizer = load_tokenizer(file)
    found = read_template(file, tokenizer)
    assert dict(found.variables) == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    start, end = tokenizer.bos_id, tokenizer.eos_id
    words = [tokenizer.encode(text).ids for text in ("system\nS", "\n", "user\nab", "assistant\n")]
    ids = encode_chat(tokenizer, found.render(say(("system", "S"), ("user", "ab"))))
    assert ids == [start, *words[0], end, *words[1], start, *words[2], end, *words[1], start, *words[3]]


@pytest.mark.parametrize(("writes", "adds"), [(True, True), (True, False), (False, True), (False, False)])
def test_there_is_never_a_second_bos(tmp_path: Path, writes: bool, adds: bool) -> None:
    source = "{{ bos_token }}ab" if writes else "ab"
    file = open_gguf(vocabulary(tmp_path / "v.gguf", source, add_bos_token=adds))
    tokenizer = load_tokenizer(file)
    ids = encode_chat(tokenizer, read_template(file, tokenizer).render(say(("user", "x"))))
    assert ids.count(tokenizer.bos_id) == (1 if writes or adds else 0)
    assert tokenizer.decode(ids).removeprefix("<|im_start|>") == "ab"


def test_sentencepiece_models_have_one_bos_too(tmp_path: Path) -> None:
    entries = [(letter, -1.0) for letter in "▁INSTab[/]"]
    path = sentencepiece(entries).but(chat_template=STRICT, add_bos_token=True).write(tmp_path / "v.gguf")
    file = open_gguf(rename(path))
    tokenizer = load_tokenizer(file)
    ids = encode_chat(tokenizer, read_template(file, tokenizer).render(say(("user", "a"), ("assistant", "b"))))
    assert [one for one, _ in SPECIALS] == ["<unk>", "<s>", "</s>"]
    assert (ids[0], ids.count(1), ids[-1]) == (1, 1, 2)
    assert tokenizer.decode(ids[1:-1]).replace(" ", "") == "[INST]a[/INST]b"


@pytest.mark.parametrize(("source", "said"), [(None, "absent"), ("", "found str ''"), (7, "found int 7")])
def test_a_file_without_a_template(tmp_path: Path, source: object, said: str) -> None:
    file = open_gguf(vocabulary(tmp_path / "v.gguf", source))
    with pytest.raises(InputError, match=f"tokenizer.chat_template: {said}, expected a chat template"):
        read_template(file, load_tokenizer(file))


def test_looking_at_a_file_runs_no_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that would hang, and no process that could run it: neither reading nor inspecting the file cares."""
    hostile = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    path = vocabulary(tmp_path / "v.gguf", hostile)
    program = (
        "import sys\n"
        "from ember.gguf import open_gguf\n"
        "from ember.tokenizer import load_tokenizer\n"
        f"load_tokenizer(open_gguf({str(path)!r})).encode('a')\n"
        "print([name for name in ('jinja2', 'ember.chat', 'subprocess') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert run(lambda: cli.main(["inspect", str(path)], standalone_mode=False)) == 0
    file = open_gguf(path)
    assert read_template(file, load_tokenizer(file)).source == hostile


@pytest.mark.realmodel
def test_smollm2_s_own_template(smollm2: Path) -> None:
    """The text as transformers 5.24 renders it, its ids as llama.cpp (llama-cpp-python 0.3.36) gives them."""
    file = open_gguf(smollm2)
    tokenizer = load_tokenizer(file)
    found = read_template(file, tokenizer)
    assert found.source == CHATML
    text = found.render(say(("system", "Be brief."), ("user", "hi")))
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    ids = [1, 9690, 198, 6077, 5453, 30, 2, 198, 1, 4093, 198, 6004, 2, 198, 1, 520, 9531, 198]
    assert encode_chat(tokenizer, text) == ids
