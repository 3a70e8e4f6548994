// Text of spreadsheets: cells keep their columns, and each cell is one text.
import assert from "node:assert/strict";
import { createWriteStream } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { after, before, describe, it } from "node:test";
import { ZipFile } from "yazl";
import { officeText } from "../../../../actors/files/documents/office-text.ts";

const strings =
  "<sst><si><t>name</t></si><si><r><t>first </t></r><r><t>second</t></r></si>" +
  '<si><t>\u6771\u4eac</t><rPh sb="0" eb="2"><t>\u30c8\u30a6\u30ad\u30e7\u30a6</t></rPh></si></sst>';

describe("text of a spreadsheet", () => {
  let folder = "";
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "sheet-text-"));
  });
  after(async () => await rm(folder, { recursive: true }));

  async function textOf(rows: string): Promise<string> {
    const zip = new ZipFile();
    zip.addBuffer(Buffer.from(strings), "xl/sharedStrings.xml");
    zip.addBuffer(Buffer.from(`<worksheet><sheetData>${rows}</sheetData></worksheet>`), "xl/worksheets/sheet1.xml");
    zip.end();
    const path = join(folder, "book.xlsx");
    await pipeline(zip.outputStream, createWriteStream(path));
    return (await officeText(path, "sheet", 1000)).trimEnd();
  }

  it("keeps the columns of a row with empty cells", async () => {
    const rows =
      '<row><c r="A1"><v>1</v></c><c r="B1"><v>2</v></c><c r="C1"><v>3</v></c></row>' +
      '<row><c r="A2" t="s"><v>0</v></c><c r="C2"><v>4</v></c></row>' +
      '<row><c r="A3" s="1"/><c r="B3"><v>5</v></c></row>';
    assert.equal(await textOf(rows), "1\t2\t3\nname\t\t4\n\t5");
  });

  it("reads cells without a position in their order", async () => {
    assert.equal(await textOf("<row><c><v>1</v></c><c/><c><v>3</v></c></row>"), "1\t\t3");
  });

  it("shows a text of several parts as one cell, without its pronunciation", async () => {
    const inline =
      '<c r="C1" t="inlineStr"><is><r><t>a</t></r><r><t>b</t></r><rPh sb="0" eb="1"><t>x</t></rPh></is></c>';
    const rows = `<row><c r="A1" t="s"><v>1</v></c><c r="B1" t="s"><v>2</v></c>${inline}</row>`;
    assert.equal(await textOf(rows), "first second\t\u6771\u4eac\tab");
  });

  it("bounds the tabs for empty cells", async () => {
    assert.equal(await textOf('<row><c r="XFD1"><v>1</v></c></row>'), `${"\t".repeat(100)}1`);
  });
});
