"""What a detector is, and what it finds: places in a text, and nothing about what to do with them.

A detector is pure: a frozen value made from the keys that the policy gives it, which looks at one
text at a time. What becomes of a finding (a block, a mask, a flag) is for the policy to say; where
the text came from and how it was cut is for the engine to know.
"""

from __future__ import annotations

from proxy.types.guard import Detector, Finding

__all__ = ["Detector", "Finding"]
