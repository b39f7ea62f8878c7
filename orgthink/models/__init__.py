"""Decoders of Hugging Face folders in torch, their tokenizers and chat templates."""
