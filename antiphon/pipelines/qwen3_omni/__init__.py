"""Qwen3-Omni: Thinker -> Talker -> Code2Wav, with audio, image and video encoders. The declaration is ``pipeline.build``."""
