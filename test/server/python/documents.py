"""Writes documents to the folder argv[1]: most with common libraries, some of them harmful. Writes their texts to texts.json."""

import json
import os
import sys
import zipfile
import zlib

import docx
import fpdf
import openpyxl
import pptx

FOLDER = sys.argv[1]
texts = {}


def path(name, *parts):
    texts[name] = parts
    return os.path.join(FOLDER, name)


document = docx.Document()
document.add_heading("Wages", 1)
document.add_paragraph("Ann & Bob earn the same.")
row = document.add_table(1, 2).rows[0]
row.cells[0].text, row.cells[1].text = "left", "right"
document.save(path("a.docx", "Wages", "Ann & Bob earn the same.", "left", "right"))

workbook = openpyxl.Workbook()
workbook.active.append(["Name", "Wage", 3.5])
workbook.active.append(["Ann <A>", 1200])
workbook.create_sheet("two").append(["second sheet"])
workbook.save(path("a.xlsx", "Name\tWage\t3.5", "Ann <A>\t1200", "second sheet"))

slides = pptx.Presentation()
for title in (f"Title {number}." for number in range(1, 12)):
    slides.slides.add_slide(slides.slide_layouts[5]).shapes.title.text = title
slides.save(path("a.pptx", "Title 1.", "Title 2.", "Title 10.", "Title 11."))

pdf = fpdf.FPDF()
for text in ("Page one says hello.", "Page two says bye."):
    pdf.add_page()
    pdf.set_font("Helvetica", size=12)
    pdf.cell(text=text)
pdf.output(path("a.pdf", "Page one says hello.", "Page two says bye."))

OPEN_TEXT = (
    '<?xml version="1.0"?><office:document-content xmlns:office="o" xmlns:text="t"><office:body><office:text>'
    "<text:h>Heading</text:h><text:p>One <text:span>span</text:span>.<text:line-break/>Next line.</text:p>"
    "</office:text></office:body></office:document-content>"
)
with zipfile.ZipFile(path("a.odt", "Heading", "One span.\nNext line."), "w") as archive:
    archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
    archive.writestr("content.xml", OPEN_TEXT)

# The text of the following documents cannot be extracted within the limits.


def word(name, piece, count):
    """Writes a document whose text part is `piece` repeated `count` times, compressed."""
    with zipfile.ZipFile(path(name), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        with archive.open("word/document.xml", "w", force_zip64=True) as part:
            for _ in range(count):
                part.write(piece)


word("spaces.docx", b" " * 2**20, 512)
word("tags.docx", b"<a>" * 2**18, 256)

compressor = zlib.compressobj(1)
stream = b"".join(compressor.compress(b" " * 2**20) for _ in range(1024)) + compressor.flush()
with open(path("bomb.pdf"), "wb") as file:
    file.write(
        b"%%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>endobj\n"
        b"4 0 obj<</Filter/FlateDecode/Length %d>>stream\n" % len(stream)
    )
    file.write(stream + b"\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%%%EOF\n")

locked = fpdf.FPDF()
locked.set_encryption(owner_password="owner", user_password="user")
locked.add_page()
locked.set_font("Helvetica", size=12)
locked.cell(text="secret")
locked.output(path("locked.pdf"))

with open(path("cut.docx"), "wb") as file, open(os.path.join(FOLDER, "a.docx"), "rb") as whole:
    file.write(whole.read()[:20_000])

with open(os.path.join(FOLDER, "texts.json"), "w") as file:
    json.dump(texts, file)
