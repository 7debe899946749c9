"""Calls over WebRTC. ``calls`` is the HTTP door; the rest needs aiortc (extra ``webrtc``) and is imported by the first call."""
