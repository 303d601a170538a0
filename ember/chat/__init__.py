"""Conversations as a model was trained to read them: the file's own chat template, rendered only when asked for.

    template = read_template(model.file, model.tokenizer)
    ids = encode_chat(model.tokenizer, template.render([{"role": "user", "content": "مرحبا"}]))
    model.generate(tokens=ids)

A chat template is a program that came with the file. It never runs when a file is opened or looked at, and when it runs
it does so in another process, in a sandbox, with little time and memory (`ember.chat.sandbox`).
"""

from ember.chat.template import ChatTemplate, Message, encode_chat, read_template

__all__ = ["ChatTemplate", "Message", "encode_chat", "read_template"]
