"""Voice-to-voice: from the last voiced sample sent to the first audible sample received, measured in the client."""
