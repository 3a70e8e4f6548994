// EndedTasks: digests of requests whose preparation took too much time or memory. The same request is refused at once when it
// is repeated. The number is bounded, and a digest expires after 10 minutes: the machine may only have been busy.
import { createHash } from "node:crypto";
import type { GenerateRequest } from "../../engines/generation.ts";
import { LruMap } from "../../runtime/collections.ts";
import type { ServerError } from "../../runtime/errors.ts";
import { demandOf } from "../api/sealed-content.ts";

const rememberedMs = 10 * 60_000;
const maxRemembered = 256;
/** A larger request has no digest: to hash it would take longer than it saves. */
const maxDigestedBytes = 4 * 2 ** 20;

interface Refusal {
  readonly error: ServerError;
  /** performance.now() at the expiry. */
  readonly until: number;
}

export class EndedTasks {
  /** By digest. */
  readonly #refusals = new LruMap<string, Refusal>(maxRemembered);

  /** Throws the error that ended a request with this digest before. */
  check(digest: string | null): void {
    const refusal = digest === null ? undefined : this.#refusals.peek(digest);
    if (refusal !== undefined && performance.now() < refusal.until) throw refusal.error;
  }

  add(digest: string | null, error: ServerError): void {
    if (digest !== null) this.#refusals.set(digest, { error, until: performance.now() + rememberedMs });
  }
}

/** Digest of all inputs of a task of this kind on a request; null if the request is too large. */
export function requestDigest(kind: string, { model, prompt, grammar, tools }: GenerateRequest): string | null {
  const hash = createHash("sha256").update(`${kind} ${model}`);
  if (prompt.kind !== "sealed") return hash.update(JSON.stringify([prompt, grammar, tools])).digest("base64");
  return prompt.bytes.length > maxDigestedBytes ? null : hash.update(prompt.bytes).digest("base64");
}

/** Digest of the constraints on the output of a request; null: none. */
export function demandDigest({ prompt, ...request }: GenerateRequest): string | null {
  return prompt.kind === "sealed" ? prompt.demand : demandOf(request);
}
