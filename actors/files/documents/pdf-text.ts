// PDF text: extracts the text of a PDF page by page, in the order in which the text is stored in the file.
import { readFile } from "node:fs/promises";
import { getDocumentProxy } from "unpdf";

/** Reads pages until there are `limit` characters. Throws if the file is not a PDF, or is encrypted with a password. */
export async function pdfText(path: string, limit: number): Promise<string> {
  const document = await getDocumentProxy(new Uint8Array(await readFile(path)));
  let text = "";
  for (let number = 1; number <= document.numPages && text.length < limit; number++) {
    const { items } = await (await document.getPage(number)).getTextContent();
    for (const item of items) if ("str" in item) text += item.str + (item.hasEOL ? "\n" : "");
    text += "\n";
  }
  return text;
}
