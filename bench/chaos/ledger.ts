// Ledger of the chaos suite: what was promised to clients, and every broken promise. An error or a cut connection is a broken
// promise unless a fault of the schedule explains it.
import { type ErrorCode, errorCodes } from "../../runtime/errors.ts";
import type { Call, Ending } from "./client.ts";
import type { ChaosServer } from "./rig/server.ts";

/** What a fault may do to clients. */
export interface Effects {
  /** Error codes that it may cause. */
  readonly codes: readonly ErrorCode[];
  /** Whether connections to a server may be cut while its process lives. */
  readonly cuts?: boolean;
  /** Whether responses and events that were stored may be lost. */
  readonly loses?: boolean;
}

/** A response whose id a client knows. */
export interface KnownResponse {
  readonly id: string;
  readonly what: string;
  /** Server that generates it. */
  readonly server: ChaosServer;
  readonly isBackground: boolean;
  readonly hasEvents: boolean;
  /** Tokens that its text has at its end. */
  readonly tokens: number;
  /** Whole text, or longer; null: it is not known. */
  readonly reference: string | null;
  /** Texts of its events by number. */
  readonly events: Map<number, string>;
  /** Status in the last event or body that a client has seen; null: none. */
  seenEnd: string | null;
  /** Whether a client was told that it is deleted, or may have deleted it. */
  deletion: "none" | "asked" | "done";
}

export const terminalTypes = ["response.completed", "response.incomplete", "response.failed", "response.cancelled"];

/** Cut connections are judged later than this, because the exit of a process is known a moment later. */
const graceMs = 400;

export class Ledger {
  readonly violations: string[] = [];
  readonly responses = new Map<string, KnownResponse>();
  /** Number of operations by outcome. */
  readonly outcomes = new Map<string, number>();
  readonly #effects: Effects[] = [];

  /** Notes that a fault begins. */
  expect(effects: Effects): void {
    this.#effects.push(effects);
  }

  get mayLose(): boolean {
    return this.#effects.some(({ loses }) => loses === true);
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

  /** Judges how an answer ended. Returns whether it is a success. */
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

  /** Judges an error that a client got. */
  judgeError(what: string, code: string | null, details: string): void {
    this.count(`error ${code}`);
    if (code === null || !(errorCodes as readonly string[]).includes(code))
      this.broken(`${what}: an error without a documented code: ${details}`);
    else if (code === "internal") this.broken(`${what}: an internal error: ${details}`);
    else if (!this.explains(code)) this.broken(`${what}: no fault explains the error ${code}: ${details}`);
  }

  /**
   * Checks the events of a response's stream from the number `from` on: numbers without gaps, one end, the same events as in its
   * other streams. Returns the status at its end; null: the stream was cut, or ended with an error.
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
      // The end that a failed server could not store is replaced by another one.
      if (!hasError) known.events.set(from + i, text);
      if (terminalTypes.includes(type)) status = String((data.response as { status?: string }).status);
    }
    if (ending === "whole" && call.status === 200) {
      // A reader that has all events gets none.
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
