// EndedTasks: digests of requests whose preparation took too much time or memory. If such a request is repeated, it is rejected
// at once. The number of digests is limited. A digest expires after 10 minutes, because a busy machine may have been the cause.
import { createHash } from "node:crypto";
import type { GenerateRequest } from "../../engines/generation.ts";
import { LruMap } from "../../runtime/collections.ts";
import type { ServerError } from "../../runtime/errors.ts";
import { demandOf } from "../api/sealed-content.ts";

const rememberedMs = 10 * 60_000;
const maxRemembered = 256;
/** Maximum size in bytes of sealed content that gets a digest. Hashing larger content would take more time than it saves. */
const maxDigestedBytes = 4 * 2 ** 20;

interface Refusal {
  readonly error: ServerError;
  /** Time at which the entry expires, in ms of performance.now(). */
  readonly until: number;
}

export class EndedTasks {
  /** Errors of aborted tasks, by digest. */
  readonly #refusals = new LruMap<string, Refusal>(maxRemembered);

  /** Throws the error of an earlier request with this digest, if there was one. */
  check(digest: string | null): void {
    const refusal = digest === null ? undefined : this.#refusals.peek(digest);
    if (refusal !== undefined && performance.now() < refusal.until) throw refusal.error;
  }

  add(digest: string | null, error: ServerError): void {
    if (digest !== null) this.#refusals.set(digest, { error, until: performance.now() + rememberedMs });
  }
}

/** Returns the digest of a task's kind and its inputs from the request; null = the sealed content is too large. */
export function requestDigest(kind: string, { model, prompt, grammar, tools }: GenerateRequest): string | null {
  const hash = createHash("sha256").update(`${kind} ${model}`);
  if (prompt.kind !== "sealed") return hash.update(JSON.stringify([prompt, grammar, tools])).digest("base64");
  return prompt.bytes.length > maxDigestedBytes ? null : hash.update(prompt.bytes).digest("base64");
}

/** Returns the digest of the constraints on a request's output; null = no constraints. */
export function demandDigest({ prompt, ...request }: GenerateRequest): string | null {
  return prompt.kind === "sealed" ? prompt.demand : demandOf(request);
}
