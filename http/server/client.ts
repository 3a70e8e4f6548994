// Owns who a request counts for when clients take turns: its API key, else the address it came from. What leaves is a
// digest: a key is a secret, and nobody behind this file needs it. Keys are not checked here, nor anywhere.
import { createHash, randomBytes } from "node:crypto";
import type { HttpRequest } from "./edge.ts";

/** A shorter key is most likely a placeholder that many users share ("none", "EMPTY", "sk-no-key-required"). */
const MIN_KEY_LENGTH = 20;
const DIGEST_LENGTH = 16;

const bearer = /^Bearer\s+/i;
/** New in each process, so that a digest says nothing about its key. */
const salt = randomBytes(16);

type Asker = Pick<HttpRequest, "headers" | "address">;

/** Cache: a request's client is looked up several times. */
const known = new WeakMap<Asker, string>();

/** A short name for the client of a request: the same for all its requests, as long as this process lives. */
export function clientOf(request: Asker): string {
  const client = known.get(request) ?? digestOf(request);
  known.set(request, client);
  return client;
}

function digestOf({ headers, address }: Asker): string {
  const key = headers.get("authorization")?.replace(bearer, "") || headers.get("x-api-key") || "";
  const identity = key.length >= MIN_KEY_LENGTH ? key : `${address} ${key}`;
  return createHash("sha256").update(salt).update(identity).digest("base64url").slice(0, DIGEST_LENGTH);
}
