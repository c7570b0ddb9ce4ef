"""Words of English that mean the opposite of each other, by their stems."""

from __future__ import annotations

from proxy.guardrails.matching.word_overlap import stem

NEGATIVE_BEGINNINGS = ("un", "in", "im", "ir", "il", "dis", "non")

_PAIRS = """
    increase/decrease rise/fall rose/fell rises/falls grow/shrink grew/shrank more/less
    more/fewer most/least higher/lower high/low above/below over/under before/after early/late
    earlier/later first/last start/end begin/end starts/ends begins/ends include/exclude
    inside/outside indoors/outdoors minimum/maximum open/closed opens/closes open/shut
    free/paid free/pay approved/rejected approve/reject enable/disable enabled/disabled
    accept/reject win/lose won/lost success/failure cheap/expensive cheaper/dearer
    optional/mandatory optional/required optional/compulsory voluntary/mandatory on/off
    faster/slower fast/slow quick/slow hot/cold warmer/colder warm/cold wet/dry hard/soft
    heavy/light strong/weak stronger/weaker big/small bigger/smaller large/small
    larger/smaller long/short longer/shorter wide/narrow wider/narrower deep/shallow
    full/empty true/false right/wrong correct/incorrect safe/dangerous public/private
    permanent/temporary fixed/variable add/remove added/removed gain/loss gained/lost
    bought/sold profit/loss import/export arrive/depart arrival/departure north/south
    east/west northern/southern eastern/western left/right upper/lower top/bottom front/rear
    for/against agree/disagree support/oppose supported/opposed present/absent male/female
    men/women adult/child adults/children adults/minors summer/winter day/night
    morning/evening old/new older/newer older/younger old/young ancient/modern
    majority/minority many/few alive/dead living/dead guilty/innocent legal/illegal
    secure/insecure known/unknown rich/poor better/worse best/worst improve/worsen
    improved/worsened good/bad positive/negative rising/falling expand/reduce
    extended/shortened lengthen/shorten raise/lower raised/lowered raise/cut raised/cut
    upgrade/downgrade keep/delete keeps/deletes kept/deleted kept/discarded remember/forget
    remembers/forgets lock/unlock locked/unlocked attach/detach connect/disconnect
    connected/disconnected hire/dismiss hired/dismissed join/leave joined/left enter/leave
    entered/left built/demolished build/demolish present/past vertical/horizontal
    single/married same/different equal/unequal even/odd solid/liquid natural/artificial
    domestic/foreign sweet/bitter sunny/cloudy calm/windy rural/urban winner/loser ally/enemy
    friend/enemy attack/defend doubled/halved double/half
"""


def _sides() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for pair in _PAIRS.split():
        one, two = (stem(word) for word in pair.split("/"))
        if one != two:
            found.setdefault(one, set()).add(two)
            found.setdefault(two, set()).add(one)
    return {side: frozenset(others) for side, others in found.items()}


SIDES = _sides()
"""Of each word that has opposites, these."""
