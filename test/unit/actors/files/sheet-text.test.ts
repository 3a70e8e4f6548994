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

let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "sheet-text-"));
});
after(async () => await rm(folder, { recursive: true }));

describe("text of a spreadsheet", () => {
  async function textOf(rows: string, parts: Readonly<Record<string, string>> = {}): Promise<string> {
    const zip = new ZipFile();
    for (const [name, xml] of Object.entries(parts)) zip.addBuffer(Buffer.from(xml), name);
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

  it("shows dates as dates", async () => {
    const formats = [
      '<numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd"/>',
      '<numFmt numFmtId="165" formatCode="[Red]0.0&quot; days&quot;"/><numFmt numFmtId="166" formatCode="[h]:mm"/>',
    ];
    const xfs = [0, 14, 22, 164, 165, 166, 21].map((id) => `<xf numFmtId="${id}"/>`).join("");
    const styles = `<numFmts>${formats.join("")}</numFmts><cellStyleXfs><xf numFmtId="14"/></cellStyleXfs><cellXfs>${xfs}</cellXfs>`;
    const parts = { "xl/styles.xml": `<styleSheet>${styles}</styleSheet>` };
    const cells = (...all: [value: number, style: number][]) =>
      `<row>${all.map(([value, style]) => `<c s="${style}"><v>${value}</v></c>`).join("")}</row>`;
    const rows = cells(
      [45_296, 1],
      [45_296.75, 2],
      [59, 3],
      [61, 3],
      [45_296, 0],
      [45_296, 4],
      [1.5, 5],
      [0.25, 6],
      [-1, 1],
    );
    const expected = "2024-01-05\t2024-01-05 18:00:00\t1900-02-28\t1900-03-01\t45296\t45296\t1.5\t06:00:00\t-1";
    assert.equal(await textOf(rows, parts), expected);
    const workbook = { "xl/workbook.xml": '<workbook><workbookPr date1904="1"/></workbook>' };
    assert.equal(await textOf(cells([0, 1], [43_834, 1]), { ...parts, ...workbook }), "1904-01-01\t2024-01-05");
  });

  it("bounds the tabs for empty cells", async () => {
    assert.equal(await textOf('<row><c r="XFD1"><v>1</v></c></row>'), `${"\t".repeat(100)}1`);
  });
});

describe("text of an OpenDocument spreadsheet", () => {
  async function textOf(rows: string, limit = 1000): Promise<string> {
    const zip = new ZipFile();
    const content = `<office:body><office:spreadsheet><table:table>${rows}</table:table></office:spreadsheet></office:body>`;
    zip.addBuffer(Buffer.from(content), "content.xml");
    zip.end();
    const path = join(folder, "book.ods");
    await pipeline(zip.outputStream, createWriteStream(path));
    return (await officeText(path, "opensheet", limit)).trimEnd();
  }
  const row = (cells: string, attributes = "") => `<table:table-row${attributes}>${cells}</table:table-row>`;
  const cell = (text: string, attributes = "") => `<table:table-cell${attributes}>${text}</table:table-cell>`;
  const repeat = (count: number | string) => ` table:number-columns-repeated="${count}"`;
  const repeatRow = (count: number | string) => ` table:number-rows-repeated="${count}"`;
  const p = (text: string) => `<text:p>${text}</text:p>`;

  it("keeps the columns of a row with empty, covered and repeated cells", async () => {
    const rows = [
      row(cell(p("1")) + cell(p("2")) + cell(p("3"))),
      row(cell(p("name")) + cell("", repeat(2)) + cell(p("4")) + cell("", repeat(16_000))),
      row(cell("") + cell(p("5"), repeat(3))),
      row(`${cell(p("wide"))}<table:covered-table-cell/>${cell(p("6"))}`),
    ];
    assert.equal(await textOf(rows.join("")), "1\t2\t3\nname\t\t\t4\n\t5\t5\t5\nwide\t\t6");
  });

  it("repeats rows with text, but not empty ones", async () => {
    const rows = row(cell(p("a")), repeatRow(3)) + row(cell(""), repeatRow(1_000_000)) + row(cell(p("b")));
    assert.equal(await textOf(rows), "a\na\na\n\nb");
  });

  it("shows the paragraphs of a cell without its comment", async () => {
    const comment = `<office:annotation><dc:creator>Ann</dc:creator>${p("why?")}</office:annotation>`;
    assert.equal(await textOf(row(cell(comment + p("a<text:s/>b") + p("c")) + cell(p("d")))), "a b\nc\td");
  });

  it("bounds what is repeated by the characters that are read", async () => {
    const many = row(cell(p("x"), repeat(1e15)), repeatRow(1e15));
    const text = await textOf(many.repeat(1000), 500);
    assert.ok(text.startsWith("x\tx\tx") && text.length < 10_000, `${text.length} characters`);
    assert.equal(await textOf(row(cell("", repeat("Infinity")) + cell(p("1"), repeat(-3)))), `${"\t".repeat(100)}1`);
  });
});
