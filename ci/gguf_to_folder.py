"""Writes a GGUF file of the Llama class as a Hugging Face folder: config.json, model.safetensors, tokenizer.json,
tokenizer_config.json.

    python ci/gguf_to_folder.py model.gguf folder [f32|bf16|f16]
"""

import json
import pathlib
import sys

import gguf
import numpy
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
CONTROL = 3  # gguf's type of a token that is no text


def name_of(name):
    if name in WHOLE:
        return WHOLE[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.{kind}"


def half_split(rows, heads):
    """GGUF keeps the two rows of a rotated pair side by side; the half-split convention keeps them half a head apart."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def to_bf16(values):
    bits = values.view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def main(source, folder, dtype):
    reader = gguf.GGUFReader(source)
    field = lambda key, default=None: reader.fields[key].contents() if key in reader.fields else default
    arch = field("general.architecture")
    assert arch == "llama", f"{source}: expected the architecture llama, found {arch}"
    of = lambda key, default=None: field(f"llama.{key}", default)
    heads, key_heads = of("attention.head_count"), of("attention.head_count_kv")
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if ".attn_q." in tensor.name:
            values = half_split(values, heads)
        if ".attn_k." in tensor.name:
            values = half_split(values, key_heads)
        tensors[name_of(tensor.name)] = numpy.ascontiguousarray(values)
    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tokens),
        "hidden_size": of("embedding_length"),
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": of("rope.dimension_count"),
        "hidden_act": "silu",
        "max_position_embeddings": of("context_length"),
        "rms_norm_eps": float(f"{of('attention.layer_norm_rms_epsilon'):.3g}"),
        "rope_theta": of("rope.freq_base"),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "torch_dtype": {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[dtype],
    }
    folder = pathlib.Path(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # As SmolLM's: digits one by one, then GPT-2's pieces of bytes.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token, kind in zip(tokens, kinds) if kind == CONTROL]
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "bos_token": tokens[config["bos_token_id"]],
        "eos_token": tokens[config["eos_token_id"]],
        "chat_template": field("tokenizer.chat_template"),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")

    part = folder / "model.safetensors.part"
    if dtype == "bf16":
        from safetensors import serialize_file

        raw = {name: to_bf16(values) for name, values in tensors.items()}
        described = {
            name: {"dtype": "bfloat16", "shape": list(tensors[name].shape), "data": bits.tobytes()} for name, bits in raw.items()
        }
        serialize_file(described, str(part), {"format": "pt"})
    else:
        cast = {name: values.astype(numpy.float16 if dtype == "f16" else numpy.float32) for name, values in tensors.items()}
        save_file(cast, str(part), {"format": "pt"})
    part.rename(folder / "model.safetensors")
    print(f"{folder}: {len(tensors)} tensors, {sum(values.size for values in tensors.values())} elements in {dtype}")


main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "f32")
