// Trusted proxies: the address of a client behind reverse proxies, from the header X-Forwarded-For. Any client can write this
// header, so only entries written by a trusted proxy count. Each proxy appends the address of the connection that it received.
import { BlockList, isIP } from "node:net";
import type { Log } from "../../observe/log.ts";

/** Returns the address of the client of a request, given the remote address of its connection. */
export type AddressOf = (peer: string, headers: ReadonlyMap<string, string>) => string;

const untrusted =
  "ignored the header X-Forwarded-For of a peer that is not in trusted_proxies: all clients without API keys behind this peer count as " +
  "one client; if it is your reverse proxy, add its address to trusted_proxies";

interface Range {
  readonly address: string;
  readonly family: "ipv4" | "ipv6";
  /** Number of leading bits that addresses of the range share. */
  readonly bits: number;
}

export class TrustedProxies {
  readonly #trusted = new BlockList();
  readonly #log: Pick<Log, "warn">;
  #hasIgnored = false;

  /** `ranges`: see `isAddressRange`. `log` gets a warning the first time that the header of an untrusted peer is ignored. */
  constructor(ranges: readonly string[], log: Pick<Log, "warn">) {
    this.#log = log;
    for (const text of ranges) {
      const range = rangeOf(text);
      if (range === null) throw new Error(`"${text}" is no range of addresses`);
      this.#trusted.addSubnet(range.address, range.bits, range.family);
    }
  }

  /**
   * Returns the client's address. Reads the header from its end, because each proxy appends an entry, and stops at the first
   * address that is not a trusted proxy. If there is none, or if an entry is no address (such as "unknown"), returns the address
   * read last.
   */
  readonly addressOf: AddressOf = (peer, headers) => {
    const forwarded = headers.get("x-forwarded-for");
    if (forwarded === undefined) return peer;
    if (!this.#isTrusted(peer)) {
      // Node does not know the address of a connection that has just closed.
      if (peer !== "" && !this.#hasIgnored) {
        this.#hasIgnored = true;
        this.#log.warn({ peer }, untrusted);
      }
      return peer;
    }
    const chain = forwarded.split(",");
    let client = peer;
    for (let entry = chain.pop(); entry !== undefined; entry = chain.pop()) {
      const address = addressIn(entry.trim());
      if (address === null) return client;
      client = address;
      if (!this.#isTrusted(address)) return client;
    }
    return client;
  };

  #isTrusted(address: string): boolean {
    const family = isIP(address);
    return family !== 0 && this.#trusted.check(address, family === 4 ? "ipv4" : "ipv6");
  }
}

/** Returns true for an IP address, or a range of addresses such as 10.0.0.0/8 or fd00::/8. */
export function isAddressRange(text: string): boolean {
  return rangeOf(text) !== null;
}

function rangeOf(text: string): Range | null {
  const [, address = "", suffix] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  const most = version === 4 ? 32 : 128;
  const bits = suffix === undefined ? most : Number(suffix);
  if (version === 0 || bits > most) return null;
  return { address, family: version === 4 ? "ipv4" : "ipv6", bits };
}

/** Returns the address in an entry, which may have a port (192.0.2.1:80, [2001:db8::1]:80); null if it is no address. */
function addressIn(entry: string): string | null {
  const [, inBrackets, withPort] = /^(?:\[(.+)\](?::\d+)?|([\d.]+):\d+)$/.exec(entry) ?? [];
  const address = inBrackets ?? withPort ?? entry;
  return isIP(address) === 0 ? null : address;
}
