"""Media of a request to what the encoders read: fetched under a policy, decoded within a budget, never past it."""
