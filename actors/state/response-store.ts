// Response store: stores responses in a key-value store. Runs on the state thread; in tests, on the caller's thread. It
// determines whether the process that generates a response still runs.
import { setImmediate as nextTurn } from "node:timers/promises";
import { joinBytes } from "../../runtime/bytes.ts";
import { wallTime } from "../../runtime/clock.ts";
import { ServerError } from "../../runtime/errors.ts";
import { isAlive, ownIdentity } from "../../runtime/host/process-identity.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { Entry, KeptEntry, Part, Store } from "../../runtime/store/store.ts";
import type {
  FoundResponse,
  ItemPage,
  ItemTexts,
  ListedPage,
  ListedResponse,
  PageRequest,
  ResponseUpdate,
  Runner,
  SliceRequest,
  Span,
  StoredResponse,
  StoredResponses,
  Turn,
  UpdateOutcome,
} from "../api/stored-responses.ts";
import { ItemList, indexOf } from "./item-list.ts";
import { sliceOf } from "./spans.ts";

/** Maximum number of responses in one conversation. */
const MAX_HISTORY = 1024;
const MAX_HISTORY_BYTES = 16 * 2 ** 20;
/**
 * Time in ms for which a tombstone is kept after the end of its response. Within this time, a server may
 * repeat a write whose reply was lost.
 */
const TOMBSTONE_MS = 10 * 60_000;

/** Fields of a response for lists. Responses of earlier versions lack them. */
type ListFields = Pick<StoredResponse, "createdAt" | "model" | "inputStart" | "outputStart">;

/** Fields of a response that are read without reading its large parts. */
export interface KeptHead
  extends Pick<StoredResponse, "previousId" | "isRunning" | "status" | "isBackground">,
    Partial<ListFields> {
  readonly inputCount: number;
  readonly outputCount: number;
  /** Number of the first stored event; null: none are stored. */
  readonly firstEvent: number | null;
  /** Identity of the process that generates the response. */
  readonly owner: string;
  /**
   * True for a tombstone: a server has deleted the response while another server generates it. Later writes of the generating
   * server are dropped, so that they do not restore the response.
   */
  readonly isDeleted: boolean;
}

type ChangingPart = "body" | "interrupted" | "output" | "outputIndex" | "events";
type PartName = ChangingPart | "settings" | "input" | "inputIndex";
type Kept = KeptEntry<KeptHead>;

export class ResponseStore implements StoredResponses {
  readonly #store: Store<KeptHead>;
  readonly #owner = ownIdentity();
  /** Allows one conversation to be read at a time, because each needs up to MAX_HISTORY_BYTES. */
  readonly #histories = new Gate(1);

  constructor(store: Store<KeptHead>) {
    this.#store = store;
  }

  async add(response: StoredResponse): Promise<void> {
    const { id, client, previousId, isBackground, createdAt, model, inputStart, settings, input } = response;
    const constant = { previousId, isBackground, createdAt, model, inputStart, inputCount: input.ids.length };
    const head = { ...constant, ...this.#changingHead(response) };
    const parts = { ...changingParts(response), settings, input: input.texts, inputIndex: indexOf(input) };
    const entry: Entry<KeptHead> = { head, share: client, parts: presentParts(parts) };
    for (let version: number | null = null; !(await this.#store.compareAndSet(id, version, entry)); ) {
      const kept = this.#store.get(id);
      if (kept?.head.isDeleted) return;
      version = kept?.version ?? null;
    }
  }

  async update(update: ResponseUpdate): Promise<UpdateOutcome> {
    const changed = changingParts(update);
    for (;;) {
      const kept = this.#store.get(update.id);
      if (kept === null) return "evicted";
      const head = { ...kept.head, ...this.#changingHead(update) };
      const next = kept.head.isDeleted
        ? { ...kept, expiresAt: kept.expiresAt ?? wallTime() + TOMBSTONE_MS }
        : { ...kept, head, parts: presentParts({ ...kept.parts, ...changed }) };
      if (await this.#store.compareAndSet(update.id, kept.version, next)) {
        return kept.head.isDeleted ? "deleted" : "updated";
      }
    }
  }

  async find(id: string): Promise<FoundResponse | null> {
    const kept = this.#get(id);
    if (kept === null) return null;
    const { status, isBackground, firstEvent } = kept.head;
    const settings = spansOf(kept, "settings");
    const interrupted = spansOf(kept, "interrupted");
    return {
      id,
      runner: this.#runner(kept.head),
      status,
      isBackground,
      body: [...spansOf(kept, "body"), ...settings],
      interrupted: interrupted.length === 0 ? null : [...interrupted, ...settings],
      events: firstEvent === null ? null : { first: firstEvent, spans: spansOf(kept, "events") },
    };
  }

  async list({ after, limit }: Parameters<StoredResponses["list"]>[0]): Promise<ListedPage | null> {
    const last = after === null ? null : this.#get(after);
    if (after !== null && last === null) return null;
    const found: ListedResponse[] = [];
    let before = after === null || last === null ? null : { born: last.born, key: after };
    do {
      // Other messages of this thread are handled between two pages. A page may be empty, because deleted responses are skipped.
      await nextTurn();
      const { entries, next } = this.#store.newest({ before, limit: limit + 1 });
      for (const kept of entries) if (!kept.head.isDeleted) found.push(this.#listed(kept.key, kept));
      before = next;
    } while (before !== null && found.length <= limit);
    return { responses: found.slice(0, limit), hasMore: found.length > limit };
  }

  async delete(id: string): Promise<boolean> {
    for (;;) {
      const kept = this.#get(id);
      if (kept === null) return false;
      if (await this.#store.compareAndSet(id, kept.version, this.#tombstone(kept))) return true;
    }
  }

  async slice({ spans, at }: SliceRequest): Promise<Uint8Array | null> {
    return sliceOf(spans, at, (part, from, to) => this.#store.read(part, from, to));
  }

  async page(request: PageRequest): Promise<ItemPage | null> {
    const kept = this.#get(request.id);
    return kept === null ? null : this.#list(kept, "input").page(request);
  }

  async item({ id, itemId }: { readonly id: string; readonly itemId: string }): Promise<readonly Span[] | null> {
    const kept = this.#get(id);
    if (kept === null) return null;
    return this.#list(kept, "input").item(itemId) ?? this.#list(kept, "output").item(itemId);
  }

  async history(id: string): Promise<readonly Turn[]> {
    const kept = this.#get(id);
    if (kept === null) throw missing(id, id);
    return await this.#histories.pass(() => this.#history(id), kept.share);
  }

  async sweep(): Promise<void> {
    await this.#store.sweep();
  }

  async onStop(): Promise<void> {
    await this.#store.close();
  }

  async #history(id: string): Promise<readonly Turn[]> {
    const turns: Turn[] = [];
    let bytes = 0;
    for (let at: string | null = id; at !== null; ) {
      // One read may take 20 ms, so other messages of this thread are handled before each read.
      await nextTurn();
      const kept: Kept | null = this.#get(at);
      if (kept === null) throw missing(at, id);
      bytes += bytesOf(kept, "input") + bytesOf(kept, "output");
      if (turns.length >= MAX_HISTORY || bytes > MAX_HISTORY_BYTES) throw tooLong(id);
      turns.push({ id: at, runner: this.#runner(kept.head), items: this.#items(kept) });
      at = kept.head.previousId;
    }
    return turns.reverse();
  }

  #listed(id: string, { head, born }: Kept): ListedResponse {
    const { createdAt = Math.floor(born / 1000), model = null, inputStart = null, outputStart = null } = head;
    const { status, isBackground } = head;
    return { id, createdAt, status, isBackground, model, inputStart, outputStart, runner: this.#runner(head) };
  }

  #get(id: string): Kept | null {
    const kept = this.#store.get(id);
    return kept === null || kept.head.isDeleted ? null : kept;
  }

  /** Returns the tombstone that replaces a deleted response; null: none is needed. */
  #tombstone({ head, share }: Kept): Entry<KeptHead> | null {
    if (head.owner === this.#owner || !isAlive(head.owner)) return null;
    const expiresAt = head.isRunning ? null : wallTime() + TOMBSTONE_MS;
    return { head: { ...head, isDeleted: true }, share, parts: {}, expiresAt };
  }

  #changingHead(update: ResponseUpdate) {
    const { isRunning, status, output, outputStart, events } = update;
    const firstEvent = events?.first ?? null;
    const outputCount = output.ids.length;
    return { isRunning, status, outputCount, outputStart, firstEvent, owner: this.#owner, isDeleted: false };
  }

  #list(kept: Kept, which: "input" | "output"): ItemList {
    const { input, inputIndex, output, outputIndex } = kept.parts as Partial<Record<PartName, Part>>;
    const [texts, index] = which === "input" ? [input, inputIndex] : [output, outputIndex];
    const count = which === "input" ? kept.head.inputCount : kept.head.outputCount;
    return new ItemList(count, texts?.id ?? 0, (from, to) => this.#bytes(index, from, to));
  }

  /** Returns the input items followed by the output items. */
  #items(kept: Kept): ItemTexts {
    const lists = [this.#list(kept, "input"), this.#list(kept, "output")];
    const texts = [this.#whole(kept, "input"), this.#whole(kept, "output")];
    const ends = new Uint32Array(kept.head.inputCount + kept.head.outputCount);
    let [count, length] = [0, 0];
    for (const [i, list] of lists.entries()) {
      for (const end of list.ends()) ends[count++] = end + length;
      length += texts[i]?.byteLength ?? 0;
    }
    return { ids: lists.flatMap((list) => list.ids()), texts: joinBytes(texts), ends };
  }

  #whole(kept: Kept, part: PartName): Uint8Array {
    return this.#bytes(kept.parts[part], 0, bytesOf(kept, part));
  }

  /** Returns bytes of a part. The part exists, because its entry was read in the same turn of the event loop. */
  #bytes(part: Part | undefined, from: number, to: number): Uint8Array {
    if (from === to || part === undefined) return new Uint8Array(0);
    const bytes = this.#store.read(part.id, from, to);
    if (bytes === null) throw new ServerError("storage_unavailable", "a stored response is incomplete; try again");
    return bytes;
  }

  #runner({ isRunning, owner }: KeptHead): Runner | null {
    if (!isRunning) return null;
    if (owner === this.#owner) return "here";
    return isAlive(owner) ? "elsewhere" : "nobody";
  }
}

function changingParts({ body, interrupted, output, events }: ResponseUpdate): Record<ChangingPart, Uint8Array | null> {
  const isEmpty = output.ids.length === 0;
  return {
    body,
    interrupted,
    output: isEmpty ? null : output.texts,
    outputIndex: isEmpty ? null : indexOf(output),
    events: events?.text ?? null,
  };
}

/** Returns the parts that are neither null nor empty. */
function presentParts<Content extends Uint8Array | Part>(
  parts: Readonly<Record<string, Content | null>>,
): Record<string, Content> {
  const present = Object.entries(parts).filter((part): part is [string, Content] => {
    const content = part[1];
    return content instanceof Uint8Array ? content.byteLength > 0 : content !== null;
  });
  return Object.fromEntries(present);
}

function spansOf({ parts }: Kept, name: PartName): readonly Span[] {
  const part = parts[name];
  return part === undefined ? [] : [{ part: part.id, from: 0, to: part.bytes }];
}

function bytesOf({ parts }: Kept, name: PartName): number {
  return parts[name]?.bytes ?? 0;
}

function missing(id: string, from: string): ServerError {
  const text =
    id === from
      ? `Response with ID '${id}' not found`
      : `Response with ID '${id}' not found, a predecessor of '${from}': it was deleted or has expired`;
  return new ServerError("not_found", text, { param: "previous_response_id" });
}

function tooLong(id: string): ServerError {
  const text = `'${id}' continues more than ${MAX_HISTORY} responses or ${MAX_HISTORY_BYTES} bytes; send its items as input`;
  return new ServerError("invalid_value", text, { param: "previous_response_id" });
}
