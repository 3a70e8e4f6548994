// Owns request ids: the client's own where it is fit to be echoed and logged, else a new one.
import { randomUUID } from "node:crypto";

const MAX_LENGTH = 128;
const printableAscii = /^[\x20-\x7e]+$/;

export function requestId(sent: string | undefined): string {
  const isFit = sent !== undefined && sent.length <= MAX_LENGTH && printableAscii.test(sent);
  return isFit ? sent : randomUUID();
}
