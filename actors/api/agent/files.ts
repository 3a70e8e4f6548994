// Files: the interface that http/ and the agent loop use to keep and read files. The state thread implements it. The bytes are
// in a content folder on disk, one file per id; the metadata is in a store.

/** Limits of the file store, from the contract. */
export const fileLimits = {
  /** Milliseconds from the creation of a file until it expires. */
  lifetimeMs: 30 * 60_000,
  /** Maximum number of files. If there are more, the oldest ones are removed. */
  maxFiles: 4096,
  /** Maximum size in bytes of one file. */
  maxFileBytes: 64 * 2 ** 20,
  /** Maximum size in bytes of a file whose content is included in events and responses. */
  maxInlineBytes: 8 * 2 ** 20,
  /** Maximum size in bytes of all included contents of one run. Further files are only announced. */
  maxInlineRunBytes: 16 * 2 ** 20,
  /** Maximum number of characters of an input file's preview in a prompt, and of all previews of a request. */
  inputPreviewCharacters: 4096,
  requestPreviewCharacters: 32_768,
  /** Maximum number of bytes of the preview of a produced file that the model sees. */
  outputPreviewBytes: 1024,
} as const;

export type FilePurpose = "user_data" | "agent_output";

/** Where a file comes from. `tool` is `user_upload` or `request` for files of clients. */
export interface FileSource {
  readonly tool: string;
  /** Tool round, counted from 0. */
  readonly round: number;
  /** Number of the request within its session, counted from 0. */
  readonly turn: number;
}

/** Metadata of a stored file. */
export interface StoredFile {
  /** `file-<hex>` for files of clients; `file_<run>_r<round>_<index>` for produced files. */
  readonly id: string;
  readonly name: string;
  /** Format, for example "png"; null: unknown. */
  readonly format: string | null;
  /** Content type, sniffed and safe to send to a browser. */
  readonly mimeType: string;
  readonly bytes: number;
  /** Unix seconds. */
  readonly createdAt: number;
  readonly purpose: FilePurpose;
  readonly source: FileSource;
  /** Session that produced the file or to which it was sent; null: none. */
  readonly session: string | null;
  /** Whether the whole content is UTF-8 text. */
  readonly isText: boolean;
  /**
   * Beginning of the text: of the content of a text file, or of the text extracted from a PDF or office document. At most
   * inputPreviewCharacters characters; null: the file has no text.
   */
  readonly preview: string | null;
  /** Set if the file could not be produced. The file then has no content. */
  readonly failure: { readonly code: string; readonly message: string } | null;
}

/** A file to store. Its bytes are in a file of the staging folder, which the store moves to the content folder. */
export interface FileToStore {
  /** Id of a produced file; null: the store chooses one for a client's file. */
  readonly id: string | null;
  readonly name: string;
  /** Format that the client or the model named; null: from the extension. */
  readonly format: string | null;
  readonly purpose: FilePurpose;
  readonly source: FileSource;
  readonly session: string | null;
  /** Name of the client. Clients take turns while documents are read. A full store removes the oldest file of all clients. */
  readonly client: string;
  /** Path within the staging folder; null with `failure`. */
  readonly staged: string | null;
  readonly failure: StoredFile["failure"];
}

/** Result of opening a file's content. */
export type FileContent =
  | { readonly kind: "content"; readonly file: StoredFile; readonly path: string }
  /** The content is no longer kept, though the metadata is. */
  | { readonly kind: "elided"; readonly file: StoredFile }
  | { readonly kind: "failed"; readonly file: StoredFile };

export interface Files {
  /** Folder for the bytes of files that are about to be stored. It is on the same file system as the content folder. */
  readonly stagingFolder: string;
  /** Stores a file. Throws storage_unavailable; invalid_value if the file is too large or its name cannot be used. */
  add(file: FileToStore): Promise<StoredFile>;
  /** Returns the files, the newest first; at most `limit`, after the file with the id `after`. */
  list(request: {
    readonly session: string | null;
    readonly after: string | null;
    readonly limit: number;
  }): Promise<{ readonly files: readonly StoredFile[]; readonly hasMore: boolean }>;
  find(id: string): Promise<StoredFile | null>;
  /** Returns the path of the content; null: unknown or expired. A file that is open stays readable after its removal. */
  content(id: string): Promise<FileContent | null>;
  /** Returns whether the file existed. */
  delete(id: string): Promise<boolean>;
}
