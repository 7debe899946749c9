"""Many conversations at once: voice-to-voice, a simulated player's underruns, memory, idle sockets, what is left behind."""
