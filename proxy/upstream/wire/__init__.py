"""HTTP/1.1 client: ``http1`` parses, ``connection`` carries, ``dialing`` opens, ``pool`` lends."""
