// Text call: one request to one server of a model in text mode. It forwards the events as fast as the reader reads them: while
// the reader is behind, nothing is read from the connection.
import { performance } from "node:perf_hooks";
import type { FinishReason, GenerateEvent } from "../../engines/generation.ts";
import { ChatReader, type ChatUsage, chatPath } from "../../engines/remote/chat.ts";
import { parsed, type UpstreamStream } from "../../engines/remote/connection.ts";
import { type RemoteSettings, UpstreamFailure } from "../../engines/remote/upstream.ts";
import { firstTokenTimeout, stalled } from "../remote-model/failures.ts";
import type { TextUpstream } from "./text-upstreams.ts";

export interface TextCallOptions {
  readonly upstream: TextUpstream;
  readonly body: string;
  readonly choices: number;
  readonly settings: RemoteSettings;
  readonly signal: AbortSignal;
  /** Sends events. Resolves when the reader is ready for the next ones. */
  readonly send: (events: readonly GenerateEvent[]) => Promise<void>;
}

export interface TextResult {
  readonly usage: ChatUsage;
  /** Why each choice ended. */
  readonly reasons: readonly FinishReason[];
  /** Time of the first event, in ms of performance.now(). */
  readonly firstMs: number;
}

/** Runs a call. Rejects with UpstreamFailure. `onFirst` is called before the first event is sent. */
export async function callText(options: TextCallOptions, onFirst: () => void): Promise<TextResult> {
  const { upstream, body, choices, settings, signal, send } = options;
  const reader = new ChatReader(choices);
  const waiting: GenerateEvent[] = [];
  let [firstMs, lastMs] = [0, performance.now()];
  let stream: UpstreamStream | null = null;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | null = null;
  const drain = async (): Promise<void> => {
    while (waiting.length > 0 && !signal.aborted) {
      stream?.setPaused(true);
      await send(waiting.splice(0));
    }
    lastMs = performance.now();
    sending = null;
    stream?.setPaused(false);
  };
  try {
    await new Promise<void>((resolve, reject) => {
      const abort = (): void => reject(new UpstreamFailure("connection", "the request was cancelled"));
      signal.addEventListener("abort", abort, { once: true });
      if (signal.aborted) abort();
      timer = setInterval(() => {
        // While the reader is behind, the server's time limits do not apply.
        if (sending !== null) return;
        const waitedMs = performance.now() - lastMs;
        if (firstMs === 0 && waitedMs > settings.firstTokenTimeoutMs) reject(firstTokenTimeout(waitedMs));
        else if (firstMs > 0 && waitedMs > settings.stallTimeoutMs) reject(stalled(waitedMs));
      }, 250);
      stream = upstream.connection.stream(chatPath, body, {
        onEvent: (data) => {
          lastMs = performance.now();
          if (data === "[DONE]") return;
          const events = reader.read(parsed(data));
          if (events.length === 0) return;
          if (firstMs === 0) {
            firstMs = performance.now();
            onFirst();
          }
          waiting.push(...events);
          sending ??= drain();
        },
        onEnd: () => {
          if (reader.isComplete) resolve();
          else reject(new UpstreamFailure("connection", "the stream ended before the output was complete"));
        },
        onFailure: reject,
      });
    });
    await sending;
    return { usage: reader.usage, reasons: reader.reasons, firstMs };
  } finally {
    clearInterval(timer);
    // No event may follow the end of the call.
    waiting.length = 0;
    await (sending as Promise<void> | null);
    (stream as UpstreamStream | null)?.close();
  }
}
