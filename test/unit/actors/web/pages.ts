// Fixture pages: reads the files of test/fixtures/pages and test/fixtures/pages-heldout (see its README.md). Each file
// has a line of JSON, the reference text, and the page.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const fixtures = fileURLToPath(new URL("../../../../../test/fixtures/", import.meta.url));

export interface FixturePage {
  readonly name: string;
  readonly url: string;
  readonly type: string;
  readonly bytes: Uint8Array;
  /** Main text of the page, extracted by hand. */
  readonly reference: string;
  /** `gone`: texts that the extracted text must not contain. `kept`: texts that it must contain. */
  readonly gone: readonly string[];
  readonly kept: readonly string[];
}

interface Head {
  readonly url: string;
  readonly type?: string;
  readonly charset?: string;
  readonly gone: readonly string[];
  readonly kept: readonly string[];
}

export const fixturePages = pagesOf("pages");
export const heldOutPages = pagesOf("pages-heldout");

function pagesOf(folder: string): readonly FixturePage[] {
  const files = readdirSync(fixtures + folder).filter((file) => file.endsWith(".page"));
  return files.map((file) => pageOf(`${fixtures}${folder}/${file}`, file.replace(".page", "")));
}

function pageOf(path: string, name: string): FixturePage {
  const [head = "", rest = ""] = split(readFileSync(path, "utf8"), "\n=== reference\n");
  const [reference, page] = split(rest, "\n=== page\n");
  const { url, type = "text/html", charset = "utf-8", gone, kept } = JSON.parse(head) as Head;
  return { name, url, type, bytes: encode(page, charset), reference, gone, kept };
}

function split(text: string, mark: string): readonly [string, string] {
  const at = text.indexOf(mark);
  return [text.slice(0, at), text.slice(at + mark.length)];
}

/** Encodes a text in an encoding of one or two bytes per character: the inverse of TextDecoder. */
function encode(text: string, charset: string): Uint8Array {
  if (charset === "utf-8") return new TextEncoder().encode(text);
  const bytesOf = new Map<string, readonly number[]>();
  const decoder = new TextDecoder(charset);
  for (let first = 0; first < 256; first++) {
    bytesOf.set(decoder.decode(Uint8Array.of(first)), [first]);
    if (charset !== "shift_jis" || first < 128) continue;
    for (let second = 64; second < 253; second++) {
      const [character = "", more] = decoder.decode(Uint8Array.of(first, second));
      if (more === undefined && character !== "\ufffd") bytesOf.set(character, [first, second]);
    }
  }
  return Uint8Array.from([...text].flatMap((character) => [...(bytesOf.get(character) ?? [63])]));
}
