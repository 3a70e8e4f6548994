// POST /api/pull: downloads a model to the server and sends the progress as JSON lines. DELETE /api/delete: removes a
// downloaded model. Both routes are served only with max_model_downloads.
import type { z } from "zod";
import type { Download, ModelLibrary } from "../../../actors/api/model-management.ts";
import { type ErrorRecord, ServerError } from "../../../runtime/errors.ts";
import type { Context, RouteHandler } from "../../context.ts";
import { type Exchange, lineStreamHeaders } from "../../exchange.ts";
import { readJsonValue } from "../../json.ts";
import { acceptedBody } from "../../shared/accepted-body.ts";
import { reportIgnored } from "../../shared/read-request.ts";
import { type StreamCodec, streamEvents } from "../../sse.ts";
import { ollamaErrors } from "../errors.ts";
import { deleteRequestSchema, type pullLineSchema, pullRequestSchema } from "./operation.ts";

/** Minimum interval in ms between two progress lines. */
const LINE_EVERY_MS = 200;

type PullEvent = { readonly type: "progress"; readonly download: Download } | { readonly type: "done" };
type WireLine = z.output<typeof pullLineSchema>;

export const pull: RouteHandler = async (exchange, context) => {
  const library = libraryOf(context);
  const { model, name, stream } = bodyOf(exchange, context, pullRequestSchema);
  const asked = nameOf(model ?? name);
  const { signal } = exchange.request;
  if (stream === false) {
    await library.download(asked, signal, () => undefined);
    exchange.json(200, { status: "success" } satisfies WireLine);
    return;
  }
  await streamEvents(exchange, progressOf(library, asked, signal), new PullLines(exchange.id), context.config);
};

export const remove: RouteHandler = async (exchange, context) => {
  const { model, name } = bodyOf(exchange, context, deleteRequestSchema);
  await libraryOf(context).remove(nameOf(model ?? name));
  exchange.json(200, {});
};

function libraryOf({ library }: Context): ModelLibrary {
  if (library !== null) return library;
  throw new ServerError("unsupported", "this server cannot download models");
}

function bodyOf<T extends z.ZodObject>(exchange: Exchange, { config, log }: Context, schema: T): z.output<T> {
  const value = readJsonValue(exchange.request, { takesUntyped: exchange.route?.takesUntyped });
  const { body, ignored } = acceptedBody(schema, value, config.unknownFields);
  reportIgnored(exchange, ignored, log);
  return body;
}

function nameOf(name: string | null | undefined): string {
  if (typeof name === "string" && name !== "") return name;
  throw new ServerError("invalid_value", "model: expected the name of a model; got none", { param: "model" });
}

/** Yields the progress of a download, then `done`. Progress reports that arrive faster than lines are sent are skipped. */
async function* progressOf(
  library: ModelLibrary,
  name: string,
  signal: AbortSignal,
): AsyncGenerator<readonly PullEvent[]> {
  let latest: Download | null = null;
  let isDone = false;
  const done = library
    .download(name, signal, (download) => {
      latest = download;
    })
    .finally(() => {
      isDone = true;
    });
  done.catch(() => undefined);
  while (!isDone) {
    await Promise.race([done, new Promise((resolve) => setTimeout(resolve, LINE_EVERY_MS))]);
    const download = latest as Download | null;
    latest = null;
    if (download !== null) yield [{ type: "progress", download }];
  }
  await done;
  yield [{ type: "done" }];
}

class PullLines implements StreamCodec<PullEvent> {
  readonly headers = lineStreamHeaders;
  readonly #requestId: string;
  #line = line({ status: "pulling manifest" });
  #isEnded = false;

  constructor(requestId: string) {
    this.#requestId = requestId;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** NDJSON has no comments, so the last line is repeated to keep an idle stream open. */
  get keepAlive(): string {
    return this.#line;
  }

  encode(events: readonly PullEvent[]): string {
    let out = "";
    for (const event of events) {
      this.#line = line(event.type === "done" ? { status: "success" } : wireProgress(event.download));
      this.#isEnded = event.type === "done";
      out += this.#line;
    }
    return out;
  }

  fail(error: ErrorRecord): string {
    this.#isEnded = true;
    return `${ollamaErrors.body(error, this.#requestId)}\n`;
  }
}

/** Builds a progress line. It has a digest, because clients show progress only for lines with a digest. */
function wireProgress({ model, status, doneBytes, totalBytes }: Download): WireLine {
  return { status, digest: model, completed: doneBytes, ...(totalBytes === null ? {} : { total: totalBytes }) };
}

function line(value: WireLine): string {
  return `${JSON.stringify(value)}\n`;
}
