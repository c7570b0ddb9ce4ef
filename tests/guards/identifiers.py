"""Sentences with identifiers and with similar numbers.

Values are test numbers of card brands, examples of the IBAN registry, numbers reserved for drama, and
examples of the python-stdnum documentation.
"""

# ruff: noqa: E501 -- tables read better wide
from __future__ import annotations

VALUES = {
    "email": [
        "ada@mill.example", "ada.weir+bills@mill.example.org", "o'brien@mill-race.example",
        "A_W@MILL.EXAMPLE", "müller@mühle.example", "x@y.co", "ada%weir@sub.sub.mill.example",
        "1234567@mill.example", "support-team@search-answers.example.co.uk", "ада@мельница.рф",
        "first.last@123.example", "a@b.museum",
    ],
    "phone": [
        "+1 212-555-0123", "(212) 555-0187", "212.555.0199", "212-555-0101 ext. 42", "1-415-555-0132",
        "+1 (415) 555-0100", "020 7946 0123", "+44 20 7946 0958", "07700 900123", "+44 7700 900 456",
        "030 23125 014", "+49 30 23125 014", "0171 3920012", "0049 171 3920012", "06 39 98 12 34",
        "+33 1 99 00 12 34", "+33639981234", "+61 491 570 006", "+34 912 345 678", "912-345-678",
        "+39 06 1234 5678", "+81 3-1234-5678", "+55 11 91234-5678", "+91 98765 43210",
    ],
    "card": [
        "4111 1111 1111 1111", "4111111111111111", "4242-4242-4242-4242", "4012888888881881",
        "4222222222222", "5555 5555 5555 4444", "5105105105105100", "2223003122003222",
        "2223 0000 4841 0010", "2720 9900 0000 0007", "3782 822463 10005", "371449635398431",
        "6011 1111 1111 1117", "6011000990139424", "3530111333300000", "3566 0020 2036 0505",
        "30569309025904", "3852 000002 3237", "6200000000000005", "6304 0000 0000 0000",
        "2200 0000 0000 0004", "4111.1111.1111.1111",
    ],
    "iban": [
        "DE89 3704 0044 0532 0130 00", "DE89370400440532013000", "GB29 NWBK 6016 1331 9268 19",
        "FR14 2004 1010 0505 0001 3M02 606", "ES91 2100 0418 4502 0005 1332",
        "IT60X0542811101000000123456", "NL91ABNA0417164300", "CH93 0076 2011 6238 5295 7",
        "BE68539007547034", "AT611904300234573201", "NO93 8601 1117 947", "PL61109010140000071219812874",
        "SE45 5000 0000 0583 9825 7466", "gb82 west 1234 5698 7654 32", "MT84MALT011000012345MTLCAST001S",
        "SA0380000000608010167519",
    ],
    "ssn": ["536-90-4399", "123-45-6789", "536 90 4399", "001-01-0001", "772-99-9998"],
    "ip": ["192.0.2.17", "198.51.100.255", "2001:db8::1", "2001:0db8:0:0:0:ff00:42:8329",
        "::ffff:192.0.2.1", "::1", "fe80::1", "fd00::8a2e", "2001:db8::", "ff02::1:2"],
    "id_BR": ["390.533.447-05", "39053344705"], "id_DE": ["36 574 261 809", "36574261809"],
    "id_ES": ["54362315-K", "X2482300W"], "id_FR": ["2 95 10 99 126 111 93", "295109912611193"],
    "id_IT": ["RCCMNL83S18D969H"], "id_FI": ["131052-308T"], "id_SE": ["880320-0016"],
    "id_GB": ["943-476-5870", "AB 12 34 56 C", "AB123456C"], "id_CH": ["756.9217.0769.85", "7569217076985"], "id_MX": ["BOXW310820HNERXN09"],
    "id_CN": ["360426199101010071"], "id_KR": ["971013-9019902"], "id_TR": ["17291716060"],
    "id_BE": ["85 07 30 033 28", "85073003328"], "id_IN": ["2341 2341 2346", "२३४१ २३४१ २३४६", "234123412346", "ABCPE1234F"], "id_NO": ["151086 95088", "15108695088"],
    "id_CL": ["12.531.909-2"], "id_AR": ["20-05536168-2", "20055361682"], "id_CA": ["123-456-782"],
    "id_CZ": ["710319/2745"], "id_DK": ["211062-5629"], "id_IE": ["6433435F"], "id_PL": ["44051401359"], "id_HR": ["33392005961"], "id_EE": ["36805280109"],
    "id_RO": ["1630615123457"], "id_TH": ["3100600445635", "3-1006-00445-63-5"], "id_ZA": ["7503305044089"],
}  # fmt: skip

# Contexts that do not name the kind.
SENTENCES = [
    "{}", "Please write this down: {}.", "Ada Weir gave us {}, and Bob Sluice nothing at all.",
    'The form says "{}" (as of last week).', "Die Müllerin nannte uns 🌊 {} und ging.",
    "- wheel\n- {}\n- weir",
]  # fmt: skip

# Contexts that name the kind, before or after.
NAMED_VALUES = [
    ("phone", "You can call me at {} after six.", "555-0142"), ("phone", "Phone: {}", "4155550132"),
    ("phone", "my number is {} (mobile)", "2125550187"), ("phone", "Tel. {}", "55 12 34 56"),
    ("phone", "Tel. {}", "912 345 678"), ("phone", "call {}", "212 555 0187"),
    ("phone", "Rufnummer {}", "08912345"),
    ("ssn", "His social security number is {}.", "536904399"), ("ssn", "SSN {}", "123456789"),
    ("card", "a Maestro card, {}", "6759649826438453"), ("id_NL", "BSN {}", "111222333"),
    ("id_AU", "my TFN is {}", "123 456 782"), ("id_PT", "NIF {}", "123456789"),
    ("id_BG", "ЕГН {}", "8032056031"), ("id_IL", "teudat zehut {}", "3933742-3"),
    ("id_TH", "บัตรประชาชน {}", "1100600445639"), ("id_IN", "आधार: {}", "२०२६११२१०९३९"),
    ("id_MY", "NRIC {}", "770305-02-1234"),
]  # fmt: skip

NEGATIVES = [
    # dates and times
    "Due on 2026-11-21.", "2026-11-21 09:30:00 sluice opened", "2026-11-21T09:30:00.123456Z",
    "From 2026-11-21 to 2026-12-24.", "21.11.2026, 09:30", "11/21/2026 at noon", "20261121",
    "20261121093000", "backup-20261121-093000.tar.gz", "2026-11-21 2026-11-22 2026-11-23",
    "1732181400", "1732181400123", "at 09:30:15.250 and 17:45:00", "the years 1998 1999 2000 2001",
    # versions and addresses of machines
    "v1.2.3", "version 10.7.3.7", "Chrome/128.0.6613.137", "python 3.11.7, aiohttp 3.14.4",
    "from 2.31.0-1.2.4567 to 2.31.0-1.2.4568", "kernel 6.8.0-1021.23", "lodash@4.17.21", "react@18.3.1",
    "00:1B:44:11:3A:B7", "0.0.0.0.1", "1.3.6.1.4.1.311.21.20",
    # names of things
    "550e8400-e29b-41d4-a716-446655440000", "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "d41d8cd98f00b204e9800998ecf8427e", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "commit 34e3701f", "sha256:9f86d081884c7d659a2feaa0c55ad015", "ISBN 978-3-16-148410-0",
    "ISBN-10 0-306-40615-2", "ISSN 2049-3630", "EAN 4006381333931", "doi:10.1000/182.5550123",
    "SKU-4155550132", "SKU 2125550187", "part no. 2125550187", "Order 4155550132 has left the mill",
    "Order #212-555-0187", "invoice 2026-000123", "INV-2026-1121-0042", "ticket 4155550132",
    "Bestellung 4155550132", "commande 4155550132", "tracking 1Z999AA10123456784",
    "tracking number 9400 1000 0000 0000 0000 00", "case 20-1234567", "ref 4155550132/2", "lot 12345678",
    "arXiv:2401.01234v2", "RFC 9110", "ticket HR-1234567", "asin B000123456", "serial 1234-5678-9012",
    "build 20241121.1234567", "chat.completion-4155550132", "/files/4155550132/download",
    "https://mill.example/items/2125550187?page=3", "id=2125550187&x=1", "icon@2x.png", "logo@3x.webp",
    "user_4155550132", "node-212-555-0187-b", "img_20261121_093000.jpg", "A4155550132B", "#4155550132",
    # quantities
    "1,234,567.89", "1.234.567,89 EUR", "$4155550132", "€ 2125550187", "4155550132 EUR? 4155550132€",
    "3.14159265358979", "0.000012345678", "6.02214076e23", "40.712776, -74.005974", "+40.712776 -74.005974",
    "52.520008 13.404954", "1000000000", "12345678", "1234567890123", "1 000 000 000 000", "100000000000000",
    "1-2-3-4-5-6-7-8-9", "1 2 3 4 5 6 7 8 9 10 11 12", "0000000000", "99999999999999999999",
    "10 20 30 40 50 60 70 80 90", "2-3, 4-5 and 6-7 (8-9)", "16 x 4096 = 65536", "8192 16384 32768 65536",
    "128-256-512-1024", "0x4155550132", "1e10", "50%-75%", "12:34:56:78",
    # valid form, wrong check digits
    "4111 1111 1111 1112", "5555 5555 5555 4445", "1234 5678 9012 3456", "0000 0000 0000 0000",
    "9999999999999995", "DE88 3704 0044 0532 0130 00", "GB29NWBK60161331926818", "DE89370400440532013",
    "XX89370400440532013000", "000-12-3456", "666-12-3456", "900-12-3456", "123-00-4567", "123-45-0000",
    "078-05-1120", "390.533.447-06", "131052-308U", "RCCMNL83S18D969A", "880320-0018",
    # words
    "meet @ada at the weir", "a @ b . c", "@mill.example", "ada@", "ada@mill", "decorators: @app.get",
    "price @ 3.50", "ada at mill dot example", "user@localhost", "I have 2 mills and 14 wheels.",
    "the 1914-1918 war", "pages 1234-1240", "Room 101, floor 12, 14:00", "99 bottles, 12 monkeys",
    "AB12 CD34 EF56", "GB20 is a plate", "DE12", "MT84 and SA03", "NL91 is no account",
]  # fmt: skip


def positives() -> list[tuple[str, str, str]]:
    """Give kind, value and text: every value in a sentence, most of them in two."""
    results = [
        (kind, value, SENTENCES[(index + turn) % len(SENTENCES)].format(value))
        for kind, values in VALUES.items()
        for index, value in enumerate(values)
        for turn in (0, 3)
    ]
    return results + [(kind, value, text.format(value)) for kind, text, value in NAMED_VALUES]
