"""HTTP/1.1 client: parser, connections, and the opening of connections."""
