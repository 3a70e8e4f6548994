// Files: the interface that http/ and the agent loop use to store and read files. The state thread implements it. File contents
// are in a folder on disk, one file per id; the metadata is in a store.

/** Limits of the file store, from the API contract. */
export const fileLimits = {
  /** Milliseconds from the creation of a file until it expires. */
  lifetimeMs: 30 * 60_000,
  /** Maximum number of files. Beyond it, the oldest files are removed. */
  maxFiles: 4096,
  /** Maximum size in bytes of one file. */
  maxFileBytes: 64 * 2 ** 20,
  /** Maximum size in bytes of a file whose content is included in events and responses. */
  maxInlineBytes: 8 * 2 ** 20,
  /** Maximum total size in bytes of the contents included in one run's events. Further files are announced without content. */
  maxInlineRunBytes: 16 * 2 ** 20,
  /** Maximum number of input files of a request. */
  maxInputFiles: 256,
  /** Maximum number of characters of one input file's preview in a prompt, and of all previews of a request together. */
  inputPreviewCharacters: 4096,
  requestPreviewCharacters: 32_768,
  /** Maximum number of bytes of a produced file's preview in a tool result. */
  outputPreviewBytes: 1024,
} as const;

/** Form of file ids. In a bucket, objects of other programs have other names and must not be touched. */
export const fileIdPattern = /^file[-_][A-Za-z0-9_-]{1,123}$/;

export type FilePurpose = "user_data" | "agent_output";

/** Origin of a file. `tool` is `user_upload` or `request` for files from clients. */
export interface FileSource {
  readonly tool: string;
  /** Number of the tool round that produced the file, counted from 0. */
  readonly round: number;
  /** Index of the request within its session, counted from 0. */
  readonly turn: number;
}

/** Metadata of a stored file. */
export interface StoredFile {
  /** Id: `file-<hex>` for files from clients; `file_<run>_r<round>_<index>` for produced files. */
  readonly id: string;
  readonly name: string;
  /** File format, for example "png"; null = unknown. */
  readonly format: string | null;
  /** Content type, detected from the content, and safe to send to a browser. */
  readonly mimeType: string;
  readonly bytes: number;
  /** Creation time in Unix seconds. */
  readonly createdAt: number;
  readonly purpose: FilePurpose;
  readonly source: FileSource;
  /** Session that produced the file or to which it was sent; null = no session. */
  readonly session: string | null;
  /** Whether the whole content is UTF-8 text. */
  readonly isText: boolean;
  /**
   * Beginning of the file's text, at most inputPreviewCharacters characters. PDF and office documents: of the extracted text.
   * null = the file has no text.
   */
  readonly preview: string | null;
  /** Reason why the file could not be produced; such a file has no content. */
  readonly failure: { readonly code: string; readonly message: string } | null;
}

/** A file to store. Its bytes are in a staging file, which the store moves to the content folder. */
export interface FileToStore {
  /** Id of a produced file; null for a client's file, whose id the store chooses. */
  readonly id: string | null;
  readonly name: string;
  /** Format that the client or the model named; null = derived from the file extension. */
  readonly format: string | null;
  readonly purpose: FilePurpose;
  readonly source: FileSource;
  readonly session: string | null;
  /** Name of the client. Clients take turns while documents are read. A full store removes the oldest file, of whichever client. */
  readonly client: string;
  /** Path within the staging folder; null if `failure` is set. */
  readonly staged: string | null;
  readonly failure: StoredFile["failure"];
}

/** Result of opening a file's content. */
export type FileContent =
  | { readonly kind: "content"; readonly file: StoredFile; readonly path: string }
  /** The content has been removed; only the metadata is left. */
  | { readonly kind: "elided"; readonly file: StoredFile }
  | { readonly kind: "failed"; readonly file: StoredFile };

export interface Files {
  /** Folder for file contents that are about to be stored. It is on the same file system as the content folder. */
  readonly stagingFolder: string;
  /** Stores a file. Throws storage_unavailable; invalid_value if the file is too large or its name cannot be used. */
  add(file: FileToStore): Promise<StoredFile>;
  /** Returns at most `limit` files, newest first, starting after the file with the id `after`. */
  list(request: {
    readonly session: string | null;
    readonly after: string | null;
    readonly limit: number;
  }): Promise<{ readonly files: readonly StoredFile[]; readonly hasMore: boolean }>;
  find(id: string): Promise<StoredFile | null>;
  /** Returns the path of the content; null = unknown or expired file. An open file stays readable after its removal. */
  content(id: string): Promise<FileContent | null>;
  /** Deletes a file. Returns whether it existed. */
  delete(id: string): Promise<boolean>;
}
