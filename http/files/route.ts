// Files routes: upload, list, metadata, content and deletion of stored files, and access to the files of a container.
import { type Files, fileLimits, type StoredFile } from "../../actors/api/agent/files.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import type { HttpRequest } from "../server/edge.ts";
import { sessionOfContainer } from "../shared/fields/tools/tool-fields.ts";
import { type FormRules, readForm, removeStaged, type UploadedForm } from "../shared/forms/read-form.ts";
import { readQuery } from "../shared/read-query.ts";
import { hasVersionHeader } from "../shared/version-header.ts";
import { fileNotFound, sendContent } from "./content.ts";
import { filesQuery, PURPOSES } from "./query.ts";
import { vendorFile, wireContainerFile, wireFile } from "./wire.ts";

const formRules: FormRules = {
  fileFields: ["file"],
  maxFiles: 1,
  maxFileBytes: fileLimits.maxFileBytes,
  allowsFolders: false,
};
const LIFETIME_SECONDS = fileLimits.lifetimeMs / 1000;

export const uploadFile: RouteHandler = async (exchange, context) => {
  const files = filesOf(context);
  const { request } = exchange;
  const form = await readForm(request, files.stagingFolder, formRules);
  try {
    exchange.json(200, shown(exchange, await stored(files, form, request)));
  } finally {
    await removeStaged(form.files, files.stagingFolder);
  }
};

async function stored(
  files: Files,
  { fields, files: [file] }: UploadedForm,
  request: HttpRequest,
): Promise<StoredFile> {
  if (file === undefined) throw missing("file", "a file in the field `file`");
  const refusal = purposeRefusal(fields.get("purpose"), hasVersionHeader(request));
  if (refusal !== null) throw refusal;
  return await files.add({
    id: null,
    name: file.name,
    format: null,
    purpose: "user_data",
    source: { tool: "user_upload", round: 0, turn: 0 },
    session: null,
    client: clientOf(request),
    staged: file.staged,
    failure: null,
  });
}

/**
 * Returns the error for a purpose; null if the purpose is accepted. `isVendors`: the request uses the messages protocol, whose
 * clients may omit the purpose.
 */
function purposeRefusal(purpose: string | undefined, isVendors: boolean): ServerError | null {
  if (purpose === undefined) return isVendors ? null : missing("purpose", 'a purpose, for example "user_data"');
  if (PURPOSES.some((accepted) => accepted === purpose)) return null;
  const message = `expected one of ${PURPOSES.join(", ")}, got ${JSON.stringify(purpose.slice(0, 100))}`;
  return new ServerError("invalid_value", message, { param: "purpose" });
}

export const listFiles: RouteHandler = async (exchange, context) => {
  const { after = null, limit = "10000", order, purpose } = readQuery(exchange.request.query, filesQuery);
  const page = await pageOf(filesOf(context), { session: null, after, limit: Number(limit), order, purpose });
  const data = page.files.map((file) => shown(exchange, file));
  exchange.json(200, { object: "list", data, ...edgesOf(page) });
};

export const retrieveFile: RouteHandler = async (exchange, context) => {
  exchange.json(200, shown(exchange, await found(filesOf(context), exchange.parameters.file_id)));
};

export const fileContent: RouteHandler = async (exchange, context) => {
  await sendContent(exchange, context, filesOf(context), exchange.parameters.file_id ?? "");
};

export const deleteFile: RouteHandler = async (exchange, context) => {
  const { file_id: id = "" } = exchange.parameters;
  if (!(await filesOf(context).delete(id))) throw fileNotFound(id);
  exchange.json(
    200,
    hasVersionHeader(exchange.request) ? { id, type: "file_deleted" } : { id, object: "file", deleted: true },
  );
};

export const listContainerFiles: RouteHandler = async (exchange, context) => {
  const { container_id: container = "" } = exchange.parameters;
  const { after = null, limit = "10000", order } = readQuery(exchange.request.query, filesQuery);
  const session = sessionOfContainer(container);
  const page = await pageOf(filesOf(context), { session, after, limit: Number(limit), order, purpose: undefined });
  const data = page.files.map((file) => wireContainerFile(file, container));
  exchange.json(200, { object: "list", data, ...edgesOf(page) });
};

export const retrieveContainerFile: RouteHandler = async (exchange, context) => {
  const { container_id = "" } = exchange.parameters;
  exchange.json(200, wireContainerFile(await foundInContainer(exchange, context), container_id));
};

export const containerFileContent: RouteHandler = async (exchange, context) => {
  const { id } = await foundInContainer(exchange, context);
  await sendContent(exchange, context, filesOf(context), id);
};

/**
 * Finds a file of a container: a file produced by the tools of the container's session, or any uploaded file, because uploads
 * belong to no session. Throws file_not_found.
 */
async function foundInContainer({ parameters }: Exchange, context: Context): Promise<StoredFile> {
  const { container_id = "", file_id = "" } = parameters;
  const session = sessionOfContainer(container_id);
  const file = await found(filesOf(context), file_id);
  if (file.purpose === "user_data" || file.session === session) return file;
  throw fileNotFound(file_id);
}

interface PageRequest {
  readonly session: string | null;
  readonly after: string | null;
  readonly limit: number;
  readonly order: "asc" | "desc" | undefined;
  readonly purpose: string | undefined;
}

interface Page {
  readonly files: readonly StoredFile[];
  readonly hasMore: boolean;
}

/**
 * Returns a page of files in the requested order (default: newest first). Throws invalid_value if `after` names no listed file.
 */
async function pageOf(files: Files, { session, after, limit, order, purpose }: PageRequest): Promise<Page> {
  const { files: all } = await files.list({ session, after: null, limit: fileLimits.maxFiles });
  const ordered = order === "asc" ? [...all].reverse() : all;
  const chosen = purpose === undefined ? ordered : ordered.filter((file) => file.purpose === purpose);
  const start = after === null ? 0 : chosen.findIndex(({ id }) => id === after) + 1;
  if (after !== null && start === 0) {
    throw new ServerError("invalid_value", `expected the id of a listed file, got "${after}"`, { param: "after" });
  }
  return { files: chosen.slice(start, start + limit), hasMore: chosen.length > start + limit };
}

function edgesOf({ files, hasMore }: Page): object {
  return { first_id: files[0]?.id ?? null, last_id: files.at(-1)?.id ?? null, has_more: hasMore };
}

async function found(files: Files, id = ""): Promise<StoredFile> {
  const file = await files.find(id);
  if (file === null) throw fileNotFound(id);
  return file;
}

function shown({ request }: Exchange, file: StoredFile): object {
  return hasVersionHeader(request) ? vendorFile(file) : wireFile(file, LIFETIME_SECONDS);
}

function filesOf({ files }: Pick<Context, "files">): Files {
  if (files !== null) return files;
  throw new ServerError("unsupported", "this server keeps no files; send their text in the messages");
}

function missing(param: string, what: string): ServerError {
  return new ServerError("invalid_value", `expected ${what}, got none`, { param });
}
