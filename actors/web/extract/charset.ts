// Character encoding of a page: determined by the byte order mark, the content-type header, the document's own declaration, or a guess.
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const sniff = require("html-encoding-sniffer") as (
  bytes: Uint8Array,
  options: { readonly transportLayerEncodingLabel?: string; readonly defaultEncoding: string },
) => string;

/** Decodes the bytes of a text. `contentType`: value of the content-type header. Invalid bytes become U+FFFD. */
export function decodeText(bytes: Uint8Array, contentType: string): string {
  const [, label] = /charset\s*=\s*["']?([^\s"';]+)/i.exec(contentType) ?? [];
  const defaultEncoding = isUtf8(bytes) ? "UTF-8" : "windows-1252";
  const encoding = sniff(bytes, {
    ...(label === undefined ? {} : { transportLayerEncodingLabel: label }),
    defaultEncoding,
  });
  return decoder(encoding).decode(bytes);
}

function isUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

/** Returns a decoder. Encodings that this build of Node.js does not support are read as UTF-8. */
function decoder(encoding: string): InstanceType<typeof TextDecoder> {
  try {
    return new TextDecoder(encoding);
  } catch {
    return new TextDecoder();
  }
}
