"""A tiny random Qwen3 model with a byte-level tokenizer and a chat template, as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

TEXTS = [
    "A worker thinks about its sub-query and returns what it found. The organizer forks and joins.",
    "<FORK-1> 3 + 5 </FORK-1> <JOIN-1> </JOIN-1> <ANSWER> 12 * 4 - 6 </ANSWER> <RETURN> none </RETURN>",
    "Grüße, 世界! Ω ≈ 3.14159 and 0123456789",
]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_model(folder: Path, *, seed: int = 0, vocabulary: int = 384) -> Path:
    """Weights are scaled so that greedy output varies: default ones repeat one token, which hides every bug."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=vocabulary - 3, initial_alphabet=alphabet))
    bpe.add_special_tokens([AddedToken(name, special=True) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.normal_(0, 0.15 if "embed" in name else 1.5 / weight.shape[1] ** 0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
