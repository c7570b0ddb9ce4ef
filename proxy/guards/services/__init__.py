"""Guards that ask somebody else: a judge, a webhook, Presidio, a moderation endpoint."""
