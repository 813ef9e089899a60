"""Letters that look like others: a short form of the table of UTS 39, for names that stand in one list.

Names mix no alphabets (`names.problem_with`), so what is left are names that are written in one other alphabet as a
whole, and the few ASCII letters that look alike. The whole table has 6,000 rows; these are the letters of alphabets
in which a Latin word can be spelled: Cyrillic, Greek, Armenian, Georgian, Cherokee, Lisu, Coptic, small capitals.
"""

from typing import Final

_ALIKE: Final = {
    "a": "\u0430\u03b1\u0251",
    "b": "\u042c\u0185",
    "c": "\u0441\u03f2\u217d\u1d04",
    "d": "\u0501\u0257",
    "e": "\u0435\u04bd\u0454\u212e",
    "g": "\u0261\u0581",
    "h": "\u04bb\u0570",
    "i": "\u0456\u03b9\u0131\u0269\u2170",
    "j": "\u0458\u03f3",
    "k": "\u043a\u03ba",
    "l": "1I\u01c0|\u0406\u0399\u04c0\u217c\u2d4f\u16c1",
    "m": "\u043c",
    "n": "\u0578\u057c\u03c0\u043f",
    "o": "\u043e\u03bf\u0585\u10ff\u03c3\u09e6",
    "p": "\u0440\u03c1\u03f1",
    "q": "\u051b\u0563",
    "r": "\u0433\u1d26",
    "s": "\u0455\ua731",
    "t": "\u0442\u03c4",
    "u": "\u03c5\u057d\u1d1c\u0446",
    "v": "\u03bd\u0475\u1d20",
    "w": "\u0461\u051d\u026f\u03c9\u0448\u1d21",
    "x": "\u0445\u03c7\xd7",
    "y": "\u0443\u03b3\u04af\u10e7",
    "z": "\u1d22",
    "A": "\u0410\u0391\u13aa\ua4ee",
    "B": "\u0412\u0392\u13f4\ua4d0",
    "C": "\u0421\u03f9\u13df\ua4da",
    "D": "\u13a0\ua4d3\u0500",
    "E": "\u0415\u0395\u13ac\ua4f0",
    "F": "\u03dc\ua4dd\u0492",
    "G": "\u050c\u13c0\ua4d6",
    "H": "\u041d\u0397\u13bb\ua4e7",
    "J": "\u0408\u13ab\ua4d9",
    "K": "\u041a\u039a\u13e6\ua4d7",
    "L": "\u13de\ua4e1\u053c",
    "M": "\u041c\u039c\u13b7\ua4df",
    "N": "\u039d\ua4e0",
    "O": "0\u041e\u039f\u0555\ua4f3\u2c9e",
    "P": "\u0420\u03a1\u13e2\ua4d1",
    "Q": "\u051a",
    "R": "\u13a1\ua4e3",
    "S": "\u0405\u054f\u13da\ua4e2",
    "T": "\u0422\u03a4\u13a2\ua4d4",
    "U": "\u054d\ua4f4",
    "V": "\u0474\u13d9\ua4e6",
    "W": "\u051c\u13b3\ua4ea",
    "X": "\u0425\u03a7\ua4eb",
    "Y": "\u04ae\u03a5\u0423\ua4ec",
    "Z": "\u0396\u13c3\ua4dc",
    "3": "\u0417\u04e0\u021c",
    "6": "\u0431",
}
"""By the letter that stands for all that look like it. Written as escapes: the reader could not tell them apart."""

CONFUSABLES: Final = str.maketrans(
    {letter: shown for shown, letters in _ALIKE.items() for letter in letters}
    # A dot or a stroke over a letter is easily overlooked.
    | {chr(code): None for code in range(0x300, 0x370)}
)
"""For `str.translate`: each letter to the one that stands for all that look like it. Combining marks are dropped."""
