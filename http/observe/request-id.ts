// Request ids: uses the client's id if it is safe to echo and log, otherwise a new random id.
import { randomUUID } from "node:crypto";

const MAX_LENGTH = 128;
const printableAscii = /^[\x20-\x7e]+$/;

export function requestId(sent: string | undefined): string {
  const isFit = sent !== undefined && sent.length <= MAX_LENGTH && printableAscii.test(sent);
  return isFit ? sent : randomUUID();
}
