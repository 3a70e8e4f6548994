// Remote model rig: a dispatcher with real connections to fake servers, and a subscriber that collects what the dispatcher
// sends.
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { TokenFrame } from "../../../../actors/messages.ts";
import {
  jobDefaults,
  rowFinishedLength,
  rowFinishedStop,
  rowHasToken,
  rowInts,
  type SequenceJob,
} from "../../../../actors/messages.ts";
import { Dispatcher } from "../../../../actors/remote-model/dispatcher.ts";
import { Upstream } from "../../../../actors/remote-model/upstream.ts";
import { greedySampling } from "../../../../engines/generation.ts";
import { SplitCharacters } from "../../../../engines/remote/split-characters.ts";
import type { RemoteSettings } from "../../../../engines/remote/upstream.ts";
import type { ErrorRecord } from "../../../../runtime/errors.ts";
import type { StandIn } from "../../../fixtures/remote/stand-in.ts";

export const endToken = 2;
const vocabSize = 300;
/** Vocabulary texts: tokens 0 to 255 are the single bytes. */
const texts = {
  piece: (token: number) => (token < 256 ? Uint8Array.of(token) : new Uint8Array(0)),
  isControl: (token: number) => token >= 256,
};

export interface Collected {
  readonly tokens: number[];
  end: "stop" | "length" | null;
  error: ErrorRecord | null;
  cached: number;
}

export interface RigOptions extends Partial<RemoteSettings> {
  readonly queueTimeoutMs?: number;
}

/** Opens a dispatcher for these fake servers. Waits until all have responded to a probe. */
export async function openRig(t: TestContext, standIns: readonly StandIn[], options: RigOptions = {}) {
  const { queueTimeoutMs = 0, ...given } = options;
  const settings: RemoteSettings = {
    ...{ urls: standIns.map(({ url }) => url), model: null, apiKey: null, balance: "prefix", slots: 4, retries: 2 },
    ...{ connectTimeoutMs: 1000, firstTokenTimeoutMs: 5000, stallTimeoutMs: 5000, probeIntervalMs: 60_000 },
    ...given,
  };
  const notices: string[] = [];
  const splits = new SplitCharacters(texts, vocabSize);
  const onNotice = (notice: string) => notices.push(notice);
  const upstreams = settings.urls.map((url) => new Upstream({ url, settings, splits, probeToken: null, onNotice }));
  for (const upstream of upstreams) {
    const found = await upstream.find();
    upstream.expect(found);
    upstream.admit();
  }
  const downs: string[] = [];
  const dispatcher = new Dispatcher({
    ...{ settings, upstreams, queueTimeoutMs, frameIntervalMs: 0, onDown: (reason: string) => downs.push(reason) },
    limits: { sequenceTokens: 512, endTokens: new Set([endToken]) },
  });
  const sequences = new Map<number, Collected>();
  const of = (id: number): Collected => {
    const known = sequences.get(id) ?? { tokens: [], end: null, error: null, cached: 0 };
    sequences.set(id, known);
    return known;
  };
  const subscriber = { send: (frame: TokenFrame) => collect(frame, of) };
  t.after(async () => {
    dispatcher.stop();
    await Promise.all(standIns.map((standIn) => standIn.stop().catch(() => undefined)));
  });
  let nextId = 1;
  return {
    ...{ dispatcher, upstreams, notices, downs, subscriber, of },
    /** Submits a sequence. Returns its id. */
    submit(job: Partial<SequenceJob> = {}): number {
      const id = nextId++;
      const base = {
        ...jobDefaults,
        id,
        client: "me",
        prompt: Int32Array.of(5, 6, 7),
        maxNewTokens: 8,
        ignoreEos: false,
      };
      const rest = { adapter: 0, sampling: greedySampling, choice: 0, breakers: new Int32Array(0) };
      dispatcher.submit(subscriber, [{ ...base, ...rest, ...job }]);
      return id;
    },
    /** Waits until a sequence has ended. */
    async ended(id: number): Promise<Collected> {
      await until(() => of(id).end !== null || of(id).error !== null);
      return of(id);
    },
  };
}

function collect({ rows, cached, failed }: TokenFrame, of: (id: number) => Collected): void {
  for (let at = 0; at < rows.length; at += rowInts) {
    const sequence = of(rows[at] as number);
    const flags = rows[at + 2] as number;
    if (flags & rowHasToken) sequence.tokens.push(rows[at + 1] as number);
    if (flags & rowFinishedStop) sequence.end = "stop";
    if (flags & rowFinishedLength) sequence.end = "length";
  }
  for (let at = 0; cached !== null && at < cached.length; at += 2)
    of(cached[at] as number).cached = cached[at + 1] as number;
  for (const { id, error } of failed) of(id).error = error;
}

export async function until(isTrue: () => boolean, limitMs = 10_000): Promise<void> {
  const limit = Date.now() + limitMs;
  while (!isTrue()) {
    if (Date.now() > limit) throw new Error(`it did not happen within ${limitMs} ms`);
    await sleep(5);
  }
}
