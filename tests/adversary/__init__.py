"""What strangers try: hostile requests against the promises of the whole house."""
