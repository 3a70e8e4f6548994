// Client identity, for fair scheduling between clients: the API key, or the address if there is no key. It is stored as a
// digest, because the key is a secret that the rest of the server does not need. access/api-keys.ts verifies keys.
import { createHash, randomBytes } from "node:crypto";
import type { HttpRequest } from "./edge.ts";

/**
 * Minimum length of a key that identifies a client. A shorter key is probably a placeholder that many users share ("none",
 * "EMPTY", "sk-no-key-required").
 */
const MIN_KEY_LENGTH = 20;
const DIGEST_LENGTH = 16;

const bearer = /^Bearer\s+/i;
/**
 * Random salt of the digests, so that a digest does not reveal the key. Each process, or each group of replicas, has its own
 * salt.
 */
let salt: Uint8Array | string = randomBytes(16);

type Asker = Pick<HttpRequest, "headers" | "address">;

/** Cache of digests, because the client of a request is looked up several times. */
const known = new WeakMap<Asker, string>();

/** Sets the salt that all replicas of this server share. Called before the first request. */
export function shareSalt(shared: string): void {
  salt = shared;
}

/** Returns a short identifier of the client. It is the same on all replicas, and does not change while the process runs. */
export function clientOf(request: Asker): string {
  const client = known.get(request) ?? digestOf(request);
  known.set(request, client);
  return client;
}

/** Sets the client of a request that the server itself sends on behalf of a client. */
export function nameClient(request: Asker, client: string): void {
  known.set(request, client);
}

/** Returns the API key of a request; "" if it has none. */
export function keyOf(headers: HttpRequest["headers"]): string {
  return headers.get("authorization")?.replace(bearer, "") || headers.get("x-api-key") || "";
}

function digestOf({ headers, address }: Asker): string {
  const key = keyOf(headers);
  const identity = key.length >= MIN_KEY_LENGTH ? key : `${address} ${key}`;
  return createHash("sha256").update(salt).update(identity).digest("base64url").slice(0, DIGEST_LENGTH);
}
