#!/usr/bin/env python3
"""Golden ids of byte-level tokenizers, made by Hugging Face's tokenizers (pip install tokenizers==0.23.3).

tokenizer_json.py OUT            writes OUT/tokenizer_json.json: small tokenizers, texts, and the ids of each text
tokenizer_json.py OUT --large    the same with larger tokenizers and a megabyte of random text, as OUT/large.json

The tokenizers have the patterns of GPT-2, Llama 3, Qwen and o200k, and are trained on the texts. Characters that Python's
Unicode tables do not assign are left out of random text: libraries with newer tables have letters among them.
"""
import json
import pathlib
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

# The first article of the Universal Declaration of Human Rights, or its beginning, in twenty languages.
TEXTS = [
    "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos, dotados como están de razón.",
    "Todos os seres humanos nascem livres e iguais em dignidade e em direitos.",
    "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.",
    "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.",
    "Minden emberi lény szabadon születik és egyenlő méltósága és joga van.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. İstanbul, ıssız.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "Всі люди народжуються вільними і рівними у своїй гідності та правах.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "كل الناس يولدون أحراراً ومتساوين في الكرامة والحقوق.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "int main(int argc, char** argv) {\n\tfor (size_t i = 0; i < 10; ++i)\r\n\t\tstd::cout << i << \"\\n\";  // 0x1F\n}\n",
    "def f(x):\n    if x >= 1_000:\n        return {'a': [1, 2.5e-3], \"b\": None}\n\n\n    return f'{x!r:>10}'\n",
    "It's John's; they'LL, we'Ve, I'M, don'T, 'ſ 's 'K 'D'd''re '\u2019s",
    "👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ☃️ 1️⃣ café cafe\u0301 e\u0323\u0302 \u1ec7 \u00c5 A\u030a \u212b \u1100\u1161\u11a8 \uac01",
    "".join(chr(c) for c in range(32)) + "\x7f" + "".join(chr(c) for c in range(0x80, 0xA1)),
    "a\u2028b\u2029c\u3000d\u180ee\u200bf\ufeffg\u2003\u2003h\u1680i\u205fj\u202fk",
    "   leading, trailing   \n\n  two \r\n\r\n mixed \n \t \n   ",
    "1 12 123 1234 12345 ½ ² Ⅷ ٣٤٥ 一二三 ①②③④ 3.14 10,000 -5 1e10",
    "ǅǈ ʰʱ ªº ÀÉÎ ßẞ ﬁﬂ İıŁł ΣσςΑ ЁёЖж ԱաԲբ 𝔄𝔞𝟘𝟙 𐐀𐐨",
    "<|endoftext|>x<|endoftext|><|end|> <tool> a  <tool>  b<|endoftext",
    "https://example.org/a/b?c=d&e=f#g //comment\n/path/to/file\n///\r\n\r\n",
    "!@#$%^&*()_+-=[]{}|;':\",./<>?`~ €£¥§¶†‡•…—–“”‘’«»¡¿",
    "a" * 300 + " " * 70 + "\n" * 20 + "=" * 130,
    " ",
    "x",
    "",
]


def pre_tokenizer(name):
    if name == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    pattern = {"llama3": LLAMA, "qwen": LLAMA.replace(r"\p{N}{1,3}", r"\p{N}"), "o200k": O200K}[name]
    split = pre_tokenizers.Split(Regex(pattern), "isolated", invert=False)
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(name, texts, size):
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    if name == "qwen":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer(name)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", AddedToken("<|end|>", lstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("<tool>", rstrip=name != "gpt2", lstrip=name == "o200k", normalized=False)])
    return tokenizer


# `token_ids`: ids of the texts that differ if special tokens are tokens, by the number of the text.
def case(name, texts, size):
    tokenizer = trained(name, texts, size)

    def encode(text_only):
        tokenizer.encode_special_tokens = text_only
        return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]

    ids, token_ids = encode(True), encode(False)
    differ = {str(i): own for i, own in enumerate(token_ids) if own != ids[i]}
    return {"name": name, "tokenizer": json.loads(tokenizer.to_str()), "ids": ids, "token_ids": differ}


def random_texts(count):
    source = random.Random(1)
    # The tables of NFC in tokenizers are older than Python's: marks that they do not know have no order.
    ordered = normalizers.NFC().normalize_str

    def known(c):
        new_mark = 0 < unicodedata.combining(chr(c)) < 240 and ordered("q\u0345" + chr(c)) == "q\u0345" + chr(c)
        return unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and not new_mark

    assigned = [c for c in range(0x30000) if known(c)]
    parts = [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "123", "a", "The", " of", "、", ".", "__", "e\u0301"]

    def piece():
        draw = source.random()
        if draw < 0.5:
            return source.choice(source.choice(TEXTS).split(" "))
        if draw < 0.8:
            return source.choice(parts)
        return chr(assigned[source.randrange(min(len(assigned), source.choice([500, 5000, 200000])))])

    return ["".join(piece() for _ in range(400)) for _ in range(count)]


def main():
    out = pathlib.Path(sys.argv[1])
    large = "--large" in sys.argv
    texts = TEXTS + random_texts(600) if large else TEXTS
    size = 3000 if large else 400
    made = [case(name, texts, size) for name in ["gpt2", "llama3", "qwen", "o200k"]]
    path = out / ("large.json" if large else "tokenizer_json.json")
    path.write_text(json.dumps({"texts": texts, "cases": made}, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
