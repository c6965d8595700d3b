"""Small tokenizers with chat templates in the style of known models, in Hugging Face layout."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

QWEN = r"""{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
{{- '# Tools\n\n<tools>' }}
{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\n</tools><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant' }}
{%- if message.content %}{{- '\n' + message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}{{- call.function.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\n<tool_response>\n' }}{{- message.content }}{{- '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
"""In the style of Qwen 2.5."""

THINKING = QWEN.replace(
    r"{%- if message.content %}{{- '\n' + message.content }}{%- endif %}",
    r"{{- '\n' + (message.content if loop.last else message.content.split('</think>')[-1]) }}",
)
"""In the style of Qwen 3: earlier thoughts are dropped."""

LLAMA3 = r"""{{- bos_token }}
{%- if messages[0].role == 'system' %}
{%- set said = messages[0].content | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set said = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\nToday Date: ' + date_string + '\n\n' }}
{%- if tools %}{{- 'Functions:\n\n' }}
{%- for tool in tools %}{{- tool | tojson(indent=4) + '\n\n' }}{%- endfor %}{%- endif %}
{{- said + '<|eot_id|>' }}
{%- for message in messages %}
{%- if message.tool_calls %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{{- '{"name": "' + message.tool_calls[0].function.name + '", "parameters": ' }}
{{- message.tool_calls[0].function.arguments | tojson + '}<|eot_id|>' }}
{%- elif message.role == 'tool' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + message.content | tojson + '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""
"""In the style of Llama 3.1: messages are trimmed, answers of tools are JSON strings."""

_TOKENS = {
    "chatml": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
}
# note: line ends are one word, so that those before a reply are the same tokens with and without it.
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
CORPUS = ["user assistant system tool_response Functions arguments name parameters\n\n  def add(a, b):\n"] * 3


def write(folder: Path, *, tokens: str, template: str | None) -> Path:
    """A byte-level BPE tokenizer with the special tokens of a family; `<tool_call>` is one token, and not special."""
    special = _TOKENS[tokens]
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if tokens == "llama3":
        split = pre_tokenizers.Split(Regex(_LLAMA3_WORDS), "isolated")
        inner.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(CORPUS, trainer)
    inner.add_tokens([AddedToken("<tool_call>", special=False), AddedToken("</tool_call>", special=False)])
    end = "<|im_end|>" if tokens == "chatml" else "<|eot_id|>"
    outer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=special[0], eos_token=end)
    # note: some releases of transformers take a token for special only where it has a role.
    outer.add_special_tokens({"additional_special_tokens": list(special)})
    outer.chat_template = template
    outer.save_pretrained(folder)
    return folder
