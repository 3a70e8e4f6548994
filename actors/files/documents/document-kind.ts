// Document kind: a document type whose text the server can extract.

export type DocumentKind = "pdf" | "word" | "slides" | "sheet" | "opendocument" | "opensheet";

const openXml = "application/vnd.openxmlformats-officedocument";

const kinds: Readonly<Record<string, DocumentKind>> = {
  "application/pdf": "pdf",
  [`${openXml}.wordprocessingml.document`]: "word",
  [`${openXml}.presentationml.presentation`]: "slides",
  [`${openXml}.spreadsheetml.sheet`]: "sheet",
  "application/vnd.oasis.opendocument.text": "opendocument",
  "application/vnd.oasis.opendocument.presentation": "opendocument",
  "application/vnd.oasis.opendocument.spreadsheet": "opensheet",
};

/** Returns the document kind of a content type; null = text extraction is not supported. */
export function documentKind(mimeType: string): DocumentKind | null {
  return kinds[mimeType] ?? null;
}
