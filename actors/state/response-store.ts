// Response keeper: the stored responses over a store. It runs on the state place, or in the caller's thread in tests. Knows which
// of them nobody will ever finish.
import { setImmediate as nextTurn } from "node:timers/promises";
import { joinBytes } from "../../runtime/bytes.ts";
import { ServerError } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { KeptEntry, Part, Store } from "../../runtime/store/store.ts";
import type {
  FoundResponse,
  ItemPage,
  ItemTexts,
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
import { isAlive, ownIdentity } from "./process-identity.ts";
import { sliceOf } from "./spans.ts";

/** Responses one conversation goes back. */
const MAX_HISTORY = 1024;
const MAX_HISTORY_BYTES = 16 * 2 ** 20;

/** What is known of a response without a look at its parts. */
export interface KeptHead extends Pick<StoredResponse, "previousId" | "isRunning" | "status" | "isBackground"> {
  readonly inputCount: number;
  readonly outputCount: number;
  /** Number of the first event that is kept; null where none are. */
  readonly firstEvent: number | null;
  /** The process that generates it. */
  readonly owner: string;
  /**
   * Deleted by one server while another generates it: stands for it until that one comes to write its end, which would
   * otherwise bring it back.
   */
  readonly isDeleted: boolean;
}

type ChangingPart = "body" | "interrupted" | "output" | "outputIndex" | "events";
type PartName = ChangingPart | "settings" | "input" | "inputIndex";
type Kept = KeptEntry<KeptHead>;

const noParts: Readonly<Record<PartName, null>> = {
  body: null,
  interrupted: null,
  settings: null,
  input: null,
  inputIndex: null,
  output: null,
  outputIndex: null,
  events: null,
};

export class ResponseStore implements StoredResponses {
  readonly #store: Store<KeptHead>;
  readonly #owner = ownIdentity();
  /** Conversations are read one at a time: each holds up to MAX_HISTORY_BYTES. */
  readonly #histories = new Gate(1);

  constructor(store: Store<KeptHead>) {
    this.#store = store;
  }

  async add(response: StoredResponse): Promise<void> {
    const { client, previousId, isBackground, settings, input } = response;
    const head = { previousId, isBackground, inputCount: input.ids.length, ...this.#changingHead(response) };
    const parts = { ...changingParts(response), settings, input: input.texts, inputIndex: indexOf(input) };
    const present = Object.entries(parts).filter(hasBytes);
    await this.#store.put(response.id, { head, share: client, parts: Object.fromEntries(present) });
  }

  async update(update: ResponseUpdate): Promise<UpdateOutcome> {
    let outcome: UpdateOutcome = "evicted";
    await this.#store.change(update.id, changingParts(update), (kept) => {
      outcome = kept === null ? "evicted" : kept.head.isDeleted ? "deleted" : "updated";
      if (kept === null) return "keep";
      return kept.head.isDeleted ? "remove" : { head: { ...kept.head, ...this.#changingHead(update) } };
    });
    return outcome;
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

  async delete(id: string): Promise<boolean> {
    let wasThere = false;
    await this.#store.change(id, noParts, (kept) => {
      wasThere = kept !== null && !kept.head.isDeleted;
      if (kept === null || kept.head.isDeleted) return "keep";
      return this.#runner(kept.head) === "elsewhere" ? { head: { ...kept.head, isDeleted: true } } : "remove";
    });
    return wasThere;
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
      // One read may take 20 ms: other messages of this thread are handled before each.
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

  #get(id: string): Kept | null {
    const kept = this.#store.get(id);
    return kept === null || kept.head.isDeleted ? null : kept;
  }

  #changingHead(update: ResponseUpdate): Omit<KeptHead, "previousId" | "isBackground" | "inputCount"> {
    const { isRunning, status, output, events } = update;
    const firstEvent = events?.first ?? null;
    return { isRunning, status, outputCount: output.ids.length, firstEvent, owner: this.#owner, isDeleted: false };
  }

  #list(kept: Kept, which: "input" | "output"): ItemList {
    const { input, inputIndex, output, outputIndex } = kept.parts as Partial<Record<PartName, Part>>;
    const [texts, index] = which === "input" ? [input, inputIndex] : [output, outputIndex];
    const count = which === "input" ? kept.head.inputCount : kept.head.outputCount;
    return new ItemList(count, texts?.id ?? 0, (from, to) => this.#bytes(index, from, to));
  }

  /** What came, and what was answered. */
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

  /** Of a part of an entry that was found in this turn of the event loop: it is still there. */
  #bytes(part: Part | undefined, from: number, to: number): Uint8Array {
    if (from === to || part === undefined) return new Uint8Array(0);
    const bytes = this.#store.read(part.id, from, to);
    if (bytes === null) throw new ServerError("storage_unavailable", "a stored response is not whole; try again");
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

function hasBytes(part: [name: string, bytes: Uint8Array | null]): part is [string, Uint8Array] {
  return part[1] !== null && part[1].byteLength > 0;
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
      : `Response with ID '${id}' not found, which '${from}' goes on from: it has been deleted or has expired`;
  return new ServerError("not_found", text, { param: "previous_response_id" });
}

function tooLong(id: string): ServerError {
  const text = `'${id}' goes on from more than ${MAX_HISTORY} responses or ${MAX_HISTORY_BYTES} bytes; send its items as input`;
  return new ServerError("invalid_value", text, { param: "previous_response_id" });
}
