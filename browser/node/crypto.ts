// The part of node:crypto that the engine uses. The hash of Web Crypto cannot be used, because it is asynchronous.
import { sha256 } from "@noble/hashes/sha2.js";
import { Buffer } from "buffer/";

export function createHash(_name: "sha256") {
  const state = sha256.create();
  const hash = {
    update(data: string | Uint8Array) {
      state.update(typeof data === "string" ? new TextEncoder().encode(data) : new Uint8Array(data));
      return hash;
    },
    digest(encoding?: "hex" | "base64" | "base64url") {
      const bytes = Buffer.from(state.digest());
      return encoding === undefined ? bytes : bytes.toString(encoding as "hex");
    },
  };
  return hash;
}

export function randomBytes(count: number): Buffer {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(count)));
}

export function randomUUID(): string {
  return crypto.randomUUID();
}
