"""Guards that call a service: a judging model, a webhook, Presidio, a moderation endpoint."""
