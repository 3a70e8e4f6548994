// Text of office documents: what their readers see, once.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createWriteStream } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { ZipFile } from "yazl";
import { officeText } from "../../../../actors/files/documents/office-text.ts";

describe("text of an office document", () => {
  let folder = "";
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "office-text-"));
  });
  after(async () => await rm(folder, { recursive: true }));

  async function fileOf(part: string, xml: string): Promise<string> {
    const zip = new ZipFile();
    zip.addBuffer(Buffer.from(xml), part);
    zip.end();
    const path = join(folder, "document");
    await pipeline(zip.outputStream, createWriteStream(path));
    return path;
  }
  const odt = async (body: string) =>
    (
      await officeText(await fileOf("content.xml", `<office:text>${body}</office:text>`), "opendocument", 1000)
    ).trimEnd();
  const docx = async (body: string) =>
    (await officeText(await fileOf("word/document.xml", `<w:body>${body}</w:body>`), "word", 1000)).trimEnd();

  it("ODT: leaves out deleted text, comments and pronunciations", async () => {
    const deleted = "<text:changed-region><text:deletion><text:p>old</text:p></text:deletion></text:changed-region>";
    const changes = `<text:tracked-changes>${deleted}</text:tracked-changes>`;
    const comment = "<office:annotation><dc:creator>Ann</dc:creator><text:p>why?</text:p></office:annotation>";
    const ruby = "<text:ruby><text:ruby-base>kanji</text:ruby-base><text:ruby-text>kana</text:ruby-text></text:ruby>";
    assert.equal(await odt(`${changes}<text:p>a${comment}b ${ruby}</text:p>`), "ab kanji");
  });

  it("ODT: shows a footnote in brackets", async () => {
    const body = "<text:note-body><text:p>See there.</text:p></text:note-body>";
    const note = `<text:note><text:note-citation>1</text:note-citation>${body}</text:note>`;
    assert.equal(await odt(`<text:p>One${note} two</text:p>`), "One [1 See there.\n] two");
  });

  it("ODT: keeps spaces, tabs and line breaks", async () => {
    const text = '<text:p>if:<text:line-break/><text:s text:c="4"/>x<text:tab/>y<text:s/>z</text:p>';
    assert.equal(await odt(text), "if:\n    x\ty z");
    assert.equal(await odt('<text:p>a<text:s text:c="1000000000"/>b</text:p>'), `a${" ".repeat(100)}b`);
  });

  it("DOCX: shows a text box and a moved text once, and no tab stops", async () => {
    const run = (text: string) => `<w:p><w:r><w:t>${text}</w:t></w:r></w:p>`;
    const box = `<mc:AlternateContent><mc:Choice>${run("box")}</mc:Choice><mc:Fallback>${run("box")}</mc:Fallback></mc:AlternateContent>`;
    const stops = "<w:pPr><w:tabs><w:tab/><w:tab/></w:tabs></w:pPr>";
    const moved = `<w:moveFrom>${run("here")}</w:moveFrom><w:moveTo>${run("here")}</w:moveTo>`;
    assert.equal(
      await docx(`${box}${moved}<w:p>${stops}<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r></w:p>`),
      "box\nhere\na\tb",
    );
  });

  it("keeps the empty cells at the start of the first row", async () => {
    const rows = ["", "Jan"].map((text) => `<table:table-cell><text:p>${text}</text:p></table:table-cell>`).join("");
    const sheet = `<office:spreadsheet><table:table-row/><table:table-row>${rows}</table:table-row></office:spreadsheet>`;
    const program = `../../../../actors/files/documents/read-document${extname(import.meta.url)}`;
    const script = fileURLToPath(new URL(program, import.meta.url));
    const { stdout } = spawnSync(process.execPath, [script, "opensheet", await fileOf("content.xml", sheet), "1000"]);
    assert.equal(String(stdout), "\tJan");
  });
});
