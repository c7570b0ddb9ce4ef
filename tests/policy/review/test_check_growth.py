"""The work of ``check`` grows with the size of a folder, not with a product of its parts."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from proxy.policy.review.check import check_folder
from tests.for_each import for_each
from tests.guards.growth import lines

SIZES = {"keys": 60, "deployments": 30, "policies": 15}
TIMES = 4
LINEAR = TIMES * 1.25


def folder(path: Path, *, keys: int, deployments: int, policies: int) -> Path:
    path.mkdir()
    targets = "[{upstream: one, model: m%d, price: {input: 1, output: 1}}]"
    deployment = "  d%d: {policy: p%d, targets: " + targets + "}\n"
    rule = "when: {tag: {team: t%d}}, cap: {n: 1}"
    policy = "  p%d: {match: all, rules: [{name: a, " + rule + "}, {name: b, model: m%d}]}\n"
    key = "  k%d: {sha256: %s, tags: {team: t%d}, deployments: [d%d, d%d, d%d]}\n"
    parts = [
        "upstreams: {one: {dialect: openai, base_url: 'https://one.example.test'}}\n",
        "tags: {team: {pattern: 't[0-9]+'}}\n",
        "policies:\n",
        *(policy % (n, n, n) for n in range(policies)),
        "deployments:\n",
        *(deployment % (n, n % policies, n) for n in range(deployments)),
        "keys:\n",
        *(
            key % (n, sha256(b"%d" % n).hexdigest(), n, *((n + i) % deployments for i in range(3)))
            for n in range(keys)
        ),
    ]
    (path / "policies.yaml").write_text("".join(parts))
    return path


@for_each("part", [*SIZES, "all"])
def test_check_is_linear_in_each_part(part: str, tmp_path: Path) -> None:
    fields = {name: size * TIMES if part in (name, "all") else size for name, size in SIZES.items()}
    small = folder(tmp_path / f"{part}-small", **SIZES)
    large = folder(tmp_path / f"{part}-large", **fields)
    assert not check_folder(small, {}).errors  # the first check also imports modules

    steps = lines(lambda: check_folder(small, {}))

    assert lines(lambda: check_folder(large, {})) < steps * LINEAR
