"""Readers: what of each format is found, and that a damaged file is a line, not a crash."""

from __future__ import annotations

import gzip
import io
import mailbox
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest

from fultr.app.readers import KINDS, MOST_TEXT, Part, format_of
from fultr.app.worker import answers, parts_of, stamp_in

DOCX = (
    '<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>Dear </w:t></w:r><w:r><w:t>Ada</w:t></w:r></w:p>'
    "<w:p><w:r><w:t>the second line</w:t></w:r></w:p></w:body></w:document>"
)
CORE = '<cp:coreProperties xmlns:cp="c" xmlns:dc="d"><dc:title>A letter</dc:title></cp:coreProperties>'


def zipped(**members: str) -> bytes:
    """An archive; a double underscore in a name stands for a slash."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/") + ".xml", text)
    return data.getvalue()


def pdf(text: str, title: str) -> bytes:
    """A small document, by the format's definition."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        f"<</Title({title})>>".encode(),
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return (
        out
        + b"xref\n0 7\n0000000000 65535 f \n%strailer<</Size 7/Root 1 0 R/Info 6 0 R>>\nstartxref\n%d\n%%%%EOF"
        % (
            table,
            len(out),
        )
    )


def message(subject: str, text: str, html: bool = False) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Ada <ada@example.org>", "bob@example.org", subject
    mail["Date"] = "Thu, 02 Jan 2025 00:00:10 +0000"
    mail.set_content(text, subtype="html" if html else "plain")
    return mail


def _name_alone(value: object) -> str:
    """Tests are named by files, not by what is in them: zipped files hold the time."""
    return value if isinstance(value, str) and len(value) < 20 and value.isprintable() else "-"


def read(path: Path, data: bytes | str) -> list[Part]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    given = list(answers(str(path)))
    assert "problem" not in given[-1], given[-1]
    assert stamp_in(given[-1]).size == path.stat().st_size
    return [part for answer in given for part in parts_of(answer)]


@pytest.mark.parametrize(
    ("name", "data", "kind", "title", "text"),
    [
        ("plan.md", "intro\n\n# The plan\n\nBuy seeds.", "note", "The plan", "intro\n\n# The plan\n\nBuy seeds."),
        ("a.txt", "caf\xe9".encode("cp1252"), "note", "", "café"),
        ("b.txt", "naïve".encode("utf-16"), "note", "", "naïve"),
        ("run.py", "# not a title\nprint(1)", "code", "", "# not a title\nprint(1)"),
        ("t.csv", "a,b\n1,2", "data", "", "a,b\n1,2"),
        ("w.html", "<title>T</title><style>x{}</style><h1>Hi</h1>&lt;b&gt;", "page", "T", "Hi\n<b>"),
        ("l.docx", zipped(word__document=DOCX, docProps__core=CORE), "document", "A letter",
         "Dear Ada\nthe second line"),
        ("c.xlsx", zipped(xl__sharedStrings="<sst><si><t>Rent</t></si></sst>",
                          xl__worksheets__sheet1='<r><row><c t="s"><v>0</v></c><c><v>812.5</v></c></row></r>'),
         "document", "", "Rent\n812.5"),
        ("s.pptx", zipped(ppt__slides__slide10='<p xmlns:a="a"><a:p><a:t>last</a:t></a:p></p>',
                          ppt__slides__slide2='<p xmlns:a="a"><a:p><a:t>first</a:t></a:p></p>'),
         "document", "", "first\nlast"),
        ("o.odt", zipped(content='<o xmlns:text="t"><text:p>One <text:span>big</text:span> day</text:p></o>'),
         "document", "", "One big day"),
        ("p.pdf", pdf("Hello paper", "On paper"), "document", "On paper", "Hello paper"),
        ("ls.1", '.\\" comment\n.TH LS 1\n.SH NAME\nls \\- list \\fIthings\\fR\n.SH MORE\ntext', "note",
         "ls - list things", "LS 1\nNAME\nls - list things\nMORE\ntext"),
        ("c.txt.gz", gzip.compress(b"packed", mtime=0), "note", "", "packed"),
        ("d.pdf.gz", gzip.compress(pdf("x" * 2_000_000, "Long"), mtime=0), "document", "Long", "x" * MOST_TEXT),
        ("README", "plain words", "note", "", "plain words"),
        ("tool", "#!/bin/sh\necho", "code", "", "#!/bin/sh\necho"),
        ("photo.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF", "other", "", ""),
    ],
    ids=_name_alone,
)  # fmt: skip
def test_each_format_gives_its_text_and_title(tmp_path, name, data, kind, title, text):
    (part,) = read(tmp_path / name, data)
    assert (part.kind, part.title) == (kind, title)
    assert part.text.strip() == text
    assert kind in KINDS


def test_mail_is_read_message_by_message(tmp_path):
    box = mailbox.mbox(tmp_path / "all.mbox")
    box.add(message("First", "From here on\n\nFrom the second line, quoted by the mailbox"))
    box.add(message("Second", "<p>in <b>HTML</b></p><script>no()</script>", html=True))
    box.close()
    first, second = read(tmp_path / "all.mbox", (tmp_path / "all.mbox").read_bytes())
    assert (first.kind, first.title, second.title) == ("mail", "First", "Second")
    assert "Ada <ada@example.org>\nbob@example.org" in first.text
    assert second.text.endswith("in HTML")
    assert first.time == 20_090 * 86_400 + 10  # days from 1970 to 2 January 2025
    (single,) = read(tmp_path / "Maildir" / "cur" / "1.host:2,S", message("Third", "hello").as_bytes())
    assert (single.kind, single.title) == ("mail", "Third")


def test_texts_are_cut_to_what_is_indexed(tmp_path):
    (part,) = read(tmp_path / "long.txt", "äb " * MOST_TEXT)
    assert part.text == ("äb " * MOST_TEXT)[:MOST_TEXT]
    bomb = zipped(word__document='<w:d xmlns:w="w">' + "<w:t>aaaaaaaaaa</w:t>" * MOST_TEXT + "</w:d>")
    (part,) = read(tmp_path / "long.docx", bomb)
    assert part.text == "a" * MOST_TEXT


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.pdf", b"%PDF-1.4 and then nothing", "is damaged"),
        ("b.docx", b"PK\x03\x04 cut off", "is damaged"),
        ("c.docx", zipped(other="<a/>"), "holds no document"),
        ("d.docx", zipped(word__document="<w:t>no end"), "is damaged"),
        ("e.docx", zipped(word__document='<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'), "EntitiesForbidden"),
        ("f.txt.gz", gzip.compress(b"x" * 1000, mtime=0)[:20], "is damaged"),
        ("g.txt", b"\0\0\0\0", "holds no text"),
    ],
    ids=_name_alone,
)
def test_damaged_files_are_one_line(tmp_path, name, data, says):
    path = tmp_path / name
    path.write_bytes(data)
    (answer,) = answers(str(path))
    assert says in answer["problem"]
    assert "\n" not in answer["problem"]


def test_links_pipes_and_huge_files_are_not_opened(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link.txt").symlink_to(secret)
    (tmp_path / "folder").symlink_to(tmp_path / "inside")
    (tmp_path / "inside" / "note.txt").write_text("x")
    huge = tmp_path / "huge.py"
    with huge.open("wb") as file:
        file.truncate(16_000_001)
    for path in (tmp_path / "inside" / "link.txt", tmp_path / "folder" / "note.txt", huge, tmp_path / "none.txt"):
        (answer,) = answers(str(path))
        assert set(answer) == {"problem"}
    assert "too large: 16 MB" in next(answers(str(huge)))["problem"]
    assert format_of(str(huge)).largest == 16
