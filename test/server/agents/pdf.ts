// PDF files for tests, written byte by byte.
import { deflateSync } from "node:zlib";

/** Returns a PDF whose pages all have the same content. It has no cross-reference table, so a reader must search for the objects. */
export function pdfOf(content: string | Uint8Array, pages: number): Buffer {
  const stream = deflateSync(content);
  const ids = Array.from({ length: pages }, (_, i) => i + 4);
  const font = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>";
  const page = `<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Resources<</Font<</F ${font}>>>>/Contents 3 0 R>>`;
  const objects = [
    "1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj",
    `2 0 obj<</Type/Pages/Kids[${ids.map((id) => `${id} 0 R`).join(" ")}]/Count ${pages}>>endobj`,
    ...ids.map((id) => `${id} 0 obj${page}endobj`),
    `3 0 obj<</Filter/FlateDecode/Length ${stream.length}>>stream\n`,
  ];
  const end = "\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n";
  return Buffer.concat([Buffer.from(`%PDF-1.4\n${objects.join("\n")}`), stream, Buffer.from(end)]);
}

/** PDF of 80 kB that keeps its reader busy for minutes, with little memory. */
export function endlessPdf(): Buffer {
  return pdfOf(Buffer.alloc(2 ** 24, " "), 400);
}
