import { webcrypto } from "node:crypto";

/** Returns the SHA-256 of bytes in hexadecimal digits. A thread of the pool computes it, because it takes long for large files. */
export async function digestOf(bytes: Uint8Array): Promise<string> {
  return Buffer.from(await webcrypto.subtle.digest("SHA-256", bytes)).toString("hex");
}
