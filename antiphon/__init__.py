"""Antiphon: a self-hosted realtime voice agent server. The rooms: codecs, pipelines, session, realtime."""

__version__ = "0.1.0"
