// Document kind: a type of document whose text the server can read.

export type DocumentKind = "pdf" | "word" | "slides" | "sheet" | "opendocument";

const openXml = "application/vnd.openxmlformats-officedocument";

const kinds: Readonly<Record<string, DocumentKind>> = {
  "application/pdf": "pdf",
  [`${openXml}.wordprocessingml.document`]: "word",
  [`${openXml}.presentationml.presentation`]: "slides",
  [`${openXml}.spreadsheetml.sheet`]: "sheet",
  "application/vnd.oasis.opendocument.text": "opendocument",
  "application/vnd.oasis.opendocument.presentation": "opendocument",
  "application/vnd.oasis.opendocument.spreadsheet": "opendocument",
};

/** Returns the kind of a document by its content type; null: its text cannot be read. */
export function documentKind(mimeType: string): DocumentKind | null {
  return kinds[mimeType] ?? null;
}
