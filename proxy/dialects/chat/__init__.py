"""The chat family: reads chat completions into frames and writes frames for its clients.

Legacy completions are a variant: the same documents, with the text in another place.
"""
