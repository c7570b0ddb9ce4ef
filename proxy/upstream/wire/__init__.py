"""HTTP/1.1 towards upstreams, our own: what is read is as strict as the standard allows.

From the bytes up: ``head``, ``body``, ``response``; then ``connection``, ``names``, ``dialing``
and ``pool``.
"""
