// Addresses: the network addresses to which the server may connect for a client. Only public addresses outside of the
// machine's own networks are allowed.
import { BlockList, isIP } from "node:net";
import { networkInterfaces } from "node:os";

/** IPv4 addresses that are not public (RFC 6890 and others), among them those of cloud metadata services. */
const blocked = new BlockList();
for (const [net, prefix] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  // Metadata service of Azure.
  ["168.63.129.16", 32],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 3],
] as const) {
  blocked.addSubnet(net, prefix, "ipv4");
}
/** Public IPv6 addresses are global unicast (2000::/3), except ranges that embed an IPv4 address or are for documentation. */
const globalV6 = new BlockList();
globalV6.addSubnet("2000::", 3, "ipv6");
for (const [net, prefix] of [
  ["2001::", 23],
  ["2001:db8::", 32],
  ["2002::", 16],
  ["3fff::", 20],
] as const) {
  blocked.addSubnet(net, prefix, "ipv6");
}

/** Returns whether an address is public. An IPv6 address that contains an IPv4 address is not public. */
export function isPublic(address: string): boolean {
  const family = isIP(address);
  if (family === 4) return !blocked.check(address, "ipv4");
  return family === 6 && globalV6.check(address, "ipv6") && !blocked.check(address, "ipv6");
}

interface Interface {
  /** Address and prefix length, such as 192.0.2.1/24; null if unknown. */
  readonly cidr: string | null;
  readonly address: string;
}

/** Returns whether an address is public and not in a network of this machine. */
export function isOutside(address: string, interfaces: readonly Interface[] = ownInterfaces()): boolean {
  return isPublic(address) && !interfaces.some((own) => contains(own, address));
}

function ownInterfaces(): readonly Interface[] {
  return Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
}

function contains({ address: own, cidr }: Interface, address: string): boolean {
  const family = isIP(own) === 4 ? "ipv4" : "ipv6";
  if (cidr === null || isIP(own) !== isIP(address)) return own === address;
  const list = new BlockList();
  list.addSubnet(own, Number(cidr.split("/")[1]), family);
  return list.check(address, family);
}
