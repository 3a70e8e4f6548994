// Program that document-text.ts runs: writes the beginning of a document's text to stdout.
//
// Arguments: the document kind, the path of the document, the maximum number of characters.
import type { DocumentKind } from "./document-kind.ts";
import { officeText } from "./office-text.ts";
import { pdfText } from "./pdf-text.ts";

const [kind = "pdf", path = "", limit = "0"] = process.argv.slice(2) as [DocumentKind, string, string];
const text = kind === "pdf" ? await pdfText(path, Number(limit)) : await officeText(path, kind, Number(limit));
// White space at the start of the first line is kept: in a spreadsheet it stands for empty cells.
process.stdout.write(
  text
    .replace(/^\s*\n/, "")
    .trimEnd()
    .slice(0, Number(limit)),
);
