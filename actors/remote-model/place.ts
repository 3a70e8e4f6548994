// Remote model thread: the entry module of the thread of a remote model. It waits until one of the upstream servers responds,
// then accepts requests like the worker of a local model.
import { setTimeout as sleep } from "node:timers/promises";
import { endOfGenerationTokens } from "../../engines/files/gguf/end-of-generation.ts";
import { readModelMetadata } from "../../engines/files/gguf/metadata.ts";
import { embedded, type Found, tokenized } from "../../engines/remote/discover.ts";
import { SplitCharacters } from "../../engines/remote/split-characters.ts";
import { type RemoteSettings, UpstreamFailure } from "../../engines/remote/upstream.ts";
import { createVocabulary, type Vocabulary, vocabularyProbes } from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { ModelPlaceReady, ModelProtocol, ModelReport, RemotePlaceInit } from "../messages.ts";
import { Dispatcher } from "./dispatcher.ts";
import { noServer } from "./failures.ts";
import { remoteActor } from "./remote-actor.ts";
import { Upstream } from "./upstream.ts";

/** Interval in ms at which the servers are queried until one responds. */
const findMs = 1000;
/** Interval in ms of log lines while no server responds. */
const noticeMs = 30_000;

export async function start(place: PlaceContext<RemotePlaceInit>): Promise<ModelPlaceReady> {
  const { settings, path, maxModelLength, kind, queueTimeoutMs, maxQueue, frameIntervalMs, mailboxLimit } = place.init;
  const onNotice = (notice: string) => place.progress({ notice } satisfies ModelReport);
  const { tokenizer } = await readModelMetadata(path);
  const vocabulary = createVocabulary(tokenizer);
  const endTokens = new Set(endOfGenerationTokens(tokenizer));
  const generates = kind !== "embedding";
  const splits = new SplitCharacters(vocabulary, vocabulary.size);
  const probeToken = generates ? (vocabulary.bosToken ?? 0) : null;
  const upstreams = settings.urls.map((url) => new Upstream({ url, settings, splits, probeToken, onNotice }));
  const { upstream, found } = await firstFound(upstreams, onNotice);
  checkVocabulary(found, vocabulary, path);
  const probes = await probesOf(upstream, found, vocabulary, settings);
  const pooledLength = generates ? 0 : await embeddingLength(upstream, found, settings);
  for (const one of upstreams) one.expect(found);
  upstream.admit();
  const sequenceTokens = Math.min(found.model.contextTokens, maxModelLength ?? Number.POSITIVE_INFINITY);
  const dispatcher = new Dispatcher({
    settings,
    upstreams,
    limits: { sequenceTokens, endTokens },
    queueTimeoutMs,
    frameIntervalMs,
    onDown: (reason) => {
      // This thread ends, and its supervisor starts a new one, which waits until a server responds.
      dispatcher.stop();
      setImmediate(() => {
        throw new ServerError("model_failed", reason);
      });
    },
  });
  const behaviour = remoteActor(dispatcher, settings);
  place.system.spawn<ModelProtocol>("model", { ...behaviour, onStop: () => dispatcher.stop() }, { mailboxLimit });
  return readyOf({
    found,
    upstreams,
    dispatcher,
    sequenceTokens,
    vocabSize: vocabulary.size,
    path,
    pooledLength,
    probes,
    maxQueue,
  });
}

/** Waits until a server responds. Throws config_invalid if a server responds that cannot serve the model. */
async function firstFound(upstreams: readonly Upstream[], onNotice: (notice: string) => void) {
  let noticeAtMs = performance.now() + noticeMs;
  for (;;) {
    const results = await Promise.all(upstreams.map((upstream) => attempt(upstream)));
    const first = results.find((result) => "found" in result);
    if (first !== undefined && "found" in first) return first;
    const reasons = results.map((result, i) => ({
      url: (upstreams[i] as Upstream).url,
      ...(result as { failure: UpstreamFailure }),
    }));
    const final = reasons.find(({ failure }) => ["refused", "key", "garbage"].includes(failure.kind));
    if (final !== undefined) {
      const advice = final.failure.kind === "key" ? "; check api_key_env" : "";
      throw new ServerError("config_invalid", `url ${final.url}: ${final.failure.message}${advice}`, { param: "url" });
    }
    if (performance.now() >= noticeAtMs) {
      noticeAtMs = performance.now() + noticeMs;
      const shown = reasons.map(({ url, failure }) => ({ url, reason: `${failure.kind}: ${failure.message}` }));
      onNotice(noServer(shown).message.replace("; the request can be retried", "; waiting for one"));
    }
    await sleep(findMs);
  }
}

async function attempt(
  upstream: Upstream,
): Promise<{ readonly upstream: Upstream; readonly found: Found } | { readonly failure: UpstreamFailure }> {
  try {
    return { upstream, found: await upstream.find() };
  } catch (error) {
    if (error instanceof UpstreamFailure) return { failure: error };
    throw error;
  }
}

/**
 * Returns the tokens of the probe texts according to a server's tokenizer; null = the server does not tokenize texts. An element
 * is null if the text contains the name of a control token and the server may convert such names to control tokens, as vLLM does.
 */
async function probesOf({ connection }: Upstream, found: Found, vocabulary: Vocabulary, settings: RemoteSettings) {
  const probes = await tokenized(connection, found, vocabularyProbes, settings.connectTimeoutMs);
  const names = vocabulary.controlTokens.map((token) => vocabulary.tokenText(token));
  const isAsText = found.dialect.name === "llama-server" || found.dialect.grammar === "gbnf";
  const isComparable = (text: string) => isAsText || !names.some((name) => text.includes(name));
  return probes?.map((tokens, i) => (isComparable(vocabularyProbes[i] ?? "") ? tokens : null)) ?? null;
}

function checkVocabulary({ model }: Found, { size }: Vocabulary, path: string): void {
  if (model.vocabSize === null || model.vocabSize === size) return;
  const message =
    `url expects a server with the model whose tokenizer is in ${path}, which has ${size} tokens; got "${model.name}", which ` +
    `has ${model.vocabSize}: name the tokenizer of that model with tok_model_id`;
  throw new ServerError("config_invalid", message, { param: "url" });
}

async function embeddingLength(
  { connection, url }: Upstream,
  { model }: Found,
  settings: RemoteSettings,
): Promise<number> {
  try {
    const vector = await embedded(connection, model.name, [Int32Array.of(1, 1)], {
      timeoutMs: settings.firstTokenTimeoutMs,
    });
    return vector.length;
  } catch (error) {
    if (!(error instanceof UpstreamFailure)) throw error;
    const message = `url ${url}: expected a server that makes embeddings (kind = "embedding"); got ${error.message}`;
    throw new ServerError("config_invalid", message, { param: "url" });
  }
}

interface ReadyParts {
  readonly found: Found;
  readonly upstreams: readonly Upstream[];
  readonly dispatcher: Dispatcher;
  readonly sequenceTokens: number;
  readonly vocabSize: number;
  readonly path: string;
  readonly pooledLength: number;
  readonly probes: ModelPlaceReady["probes"];
  readonly maxQueue: number;
}

function readyOf(parts: ReadyParts): ModelPlaceReady {
  const { found, upstreams, dispatcher, sequenceTokens, vocabSize, path, pooledLength, probes, maxQueue } = parts;
  const { model, dialect } = found;
  const maxSequences = dispatcher.slots;
  return {
    card: {
      path,
      description: `${model.name} on ${upstreams.map(({ url }) => url).join(", ")}`,
      engine: "remote",
      backend: dialect.name,
      vocabSize,
      inputLength: 0,
      parameterCount: model.parameterCount,
      tensorBytes: model.weightBytes,
      weightBytes: 0,
      trainedContext: model.trainedContext ?? sequenceTokens,
      kvCacheBytes: 0,
    },
    capacity: {
      maxSequences,
      maxBatchTokens: sequenceTokens,
      sequenceTokens,
      maxLogitsRows: maxSequences,
      blockTokens: 1,
      kvBlocks: maxSequences * sequenceTokens,
    },
    capabilities: {
      truncate: false,
      copyPrefix: false,
      saveState: false,
      generates: pooledLength === 0,
      pooling: pooledLength === 0 ? null : "mean",
      pooledLength,
      wholeSequences: false,
      mixesLengths: true,
      chunkTokens: { least: 1, best: sequenceTokens },
      adaptersPerStep: 0,
      grammar: dialect.grammar ?? "ebnf",
    },
    maxQueue,
    probes,
  };
}
