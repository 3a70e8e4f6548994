// Upstream choice: chooses the server for a request. Prompts with the same beginning go to the same server, because it has their
// KV cache; but no server gets many more requests than the mean.
import type { RemoteSettings } from "../../engines/remote/upstream.ts";
import type { Upstream } from "./upstream.ts";

/** Number of leading prompt tokens that determine the server. Chosen by hand: longer than most system prompts without tools. */
const prefixTokens = 256;
/** Maximum number of requests of a server, relative to the mean ("consistent hashing with bounded loads", arXiv 1608.01350). */
const loadFactor = 1.25;

/** Returns the server for a prompt, among the servers with free slots; null = no server has a free slot. */
export function chooseUpstream<U extends Pick<Upstream, "url" | "outstanding" | "hasRoom">>(
  upstreams: readonly U[],
  balance: RemoteSettings["balance"],
  prompt: Int32Array,
): U | null {
  const free = upstreams.filter(({ hasRoom }) => hasRoom);
  const least = free.reduce<U | null>((best, one) => (best && best.outstanding <= one.outstanding ? best : one), null);
  if (balance === "least" || free.length < 2) return least;
  const total = free.reduce((sum, { outstanding }) => sum + outstanding, 0);
  const limit = Math.ceil((loadFactor * (total + 1)) / free.length);
  const hash = prefixHash(prompt);
  const ranked = free.toSorted((a, b) => rank(hash, b.url) - rank(hash, a.url));
  return ranked.find(({ outstanding }) => outstanding < limit) ?? least;
}

const fnvOffset = 0x811c9dc5;
const fnvPrime = 0x01000193;

function prefixHash(prompt: Int32Array): number {
  let hash = fnvOffset;
  for (const token of prompt.subarray(0, prefixTokens)) hash = Math.imul(hash ^ token, fnvPrime);
  return hash;
}

/**
 * Weight of a server for a hash; the highest weight wins. So adding or removing a server only moves that server's prompts
 * (rendezvous hashing).
 */
function rank(hash: number, url: string): number {
  let mixed = hash;
  for (let i = 0; i < url.length; i++) mixed = Math.imul(mixed ^ url.charCodeAt(i), fnvPrime);
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
