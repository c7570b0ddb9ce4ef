"""Vendor APIs: one file each. Their table is ``proxy.dialects.DIALECTS``."""
