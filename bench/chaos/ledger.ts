// Ledger of the chaos suite: records the responses that clients know and every violation of the server's guarantees. An error or a
// broken connection is a violation unless a fault of the schedule explains it.
import { type ErrorCode, errorCodes } from "../../runtime/errors.ts";
import type { Call, Ending } from "./client.ts";
import type { ChaosServer } from "./rig/server.ts";

/** Effects of a fault that clients may see. */
export interface Effects {
  /** Error codes that the fault may cause. */
  readonly codes: readonly ErrorCode[];
  /** Whether client connections may break although the server's process keeps running. */
  readonly cuts?: boolean;
  /** Whether stored responses and their events may be lost. */
  readonly loses?: boolean;
  /** Whether the fault makes the store unreachable. */
  readonly cutsStore?: boolean;
}

/** A response whose id a client knows. */
export interface KnownResponse {
  readonly id: string;
  readonly what: string;
  /** Server that generates the response. */
  readonly server: ChaosServer;
  readonly isBackground: boolean;
  readonly hasEvents: boolean;
  /** Number of tokens in the text of the complete response. */
  readonly tokens: number;
  /** Text of which the response's text must be a prefix; null if unknown. */
  readonly reference: string | null;
  /** JSON texts of the response's stream events, by sequence number. */
  readonly events: Map<number, string>;
  /** Final status of the response that a client has seen; null if no client has seen the end. */
  seenEnd: string | null;
  /** "asked": a client has sent a DELETE request; "done": the server has confirmed the deletion. */
  deletion: "none" | "asked" | "done";
}

export const terminalTypes = ["response.completed", "response.incomplete", "response.failed", "response.cancelled"];

/** Delay in ms before a broken connection is judged, because the exit of a server process is noticed a little later. */
const graceMs = 400;

export class Ledger {
  readonly violations: string[] = [];
  readonly responses = new Map<string, KnownResponse>();
  /** Number of operations for each outcome. */
  readonly outcomes = new Map<string, number>();
  readonly #effects: Effects[] = [];
  readonly #beganMs = performance.now();

  /** Records the effects of a fault, so that they do not count as violations. */
  expect(effects: Effects): void {
    this.#effects.push(effects);
  }

  /** Whether a fault may have lost stored data. */
  get mayLose(): boolean {
    return this.#effects.some(({ loses }) => loses === true);
  }

  /**
   * Whether a response of a server may be lost: because a fault may have lost stored data, or because the server ended while it
   * could not reach the store. Such a server loses responses that clients already know, because it sends a response's id after
   * at most 1 s, even if the response is not stored yet.
   */
  mayLoseOf(server: ChaosServer): boolean {
    const wasCut = this.#effects.some(({ cutsStore }) => cutsStore === true);
    return this.mayLose || (wasCut && this.wasDown(server));
  }

  /** Whether a server has been down since the beginning of the schedule. */
  wasDown(server: ChaosServer): boolean {
    return server.wasDown(this.#beganMs, Number.POSITIVE_INFINITY);
  }

  explains(code: string): boolean {
    return this.#effects.some(({ codes }) => (codes as readonly string[]).includes(code));
  }

  broken(what: string): void {
    this.violations.push(what);
  }

  count(outcome: string): void {
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + 1);
  }

  know(response: Omit<KnownResponse, "events" | "seenEnd" | "deletion">): KnownResponse {
    const known = { ...response, events: new Map(), seenEnd: null, deletion: "none" as const };
    this.responses.set(response.id, known);
    return known;
  }

  /** Judges how a request ended. `accepted`: error codes that are no violation here. Returns whether the request succeeded. */
  async judge(
    what: string,
    call: Call,
    server: ChaosServer,
    ending: Ending,
    accepted: readonly string[] = [],
  ): Promise<boolean> {
    if (ending === "left") {
      this.count("left");
      return false;
    }
    if (ending === "cut") {
      await new Promise((resolve) => setTimeout(resolve, graceMs));
      const isExplained =
        server.wasDown(call.sentMs, call.endedMs + graceMs) || this.#effects.some(({ cuts }) => cuts === true);
      if (!isExplained)
        this.broken(`${what}: the connection was cut (${call.reason}, status ${call.status}) by a server that lives`);
      this.count("cut");
      return false;
    }
    if (call.status < 400) return true;
    const code = codeOf(call.json);
    if (code !== null && accepted.includes(code)) this.count(`accepted ${code}`);
    else this.judgeError(what, code, `status ${call.status}, ${call.text.slice(0, 200)}`);
    return false;
  }

  /** Judges an error that a client received: it needs a documented code that a fault explains. */
  judgeError(what: string, code: string | null, details: string): void {
    this.count(`error ${code}`);
    if (code === null || !(errorCodes as readonly string[]).includes(code))
      this.broken(`${what}: an error without a documented code: ${details}`);
    else if (code === "internal") this.broken(`${what}: an internal error: ${details}`);
    else if (!this.explains(code)) this.broken(`${what}: no fault explains the error ${code}: ${details}`);
  }

  /**
   * Checks a response's stream that starts at sequence number `from`: the numbers have no gaps, there is one final event, and the
   * events equal those of earlier streams of the same response. Returns the final status; null if the stream broke or contains an
   * error.
   */
  judgeEvents(what: string, call: Call, known: KnownResponse, from: number, ending: Ending): string | null {
    let status: string | null = null;
    let hasError = false;
    for (const [i, { text, data }] of call.events.entries()) {
      const type = String(data.type);
      if (data.sequence_number !== from + i)
        this.broken(`${what}: event ${from + i} has the number ${data.sequence_number}`);
      if (status !== null || (hasError && type !== "response.failed"))
        this.broken(`${what}: ${type} follows the end of the stream`);
      if (type === "error") {
        hasError = true;
        this.judgeError(what, String(data.code), text.slice(0, 300));
        continue;
      }
      const earlier = known.events.get(from + i);
      if (earlier !== undefined && earlier !== text)
        this.broken(
          `${what}: event ${from + i} differs between streams: ${earlier.slice(0, 150)} | ${text.slice(0, 150)}`,
        );
      // After an error the final event is not recorded: if the failed server could not store it, another final event replaces it.
      if (!hasError) known.events.set(from + i, text);
      if (terminalTypes.includes(type)) status = String((data.response as { status?: string }).status);
    }
    if (ending === "whole" && call.status === 200) {
      // A reader that asks for events after the last one gets an empty stream.
      const hasAll = call.events.length === 0 && from > 0 && call.isDone;
      if (status === null && !hasError && !hasAll)
        this.broken(`${what}: the stream ended after ${call.events.length} events without an end`);
      if (!call.isDone) this.broken(`${what}: the stream ended without [DONE]`);
    }
    if (status !== null && !hasError) known.seenEnd = status;
    return hasError ? null : status;
  }
}

export function codeOf(body: Record<string, unknown> | null): string | null {
  const error = body?.error as { code?: unknown } | undefined;
  return typeof error?.code === "string" ? error.code : null;
}
