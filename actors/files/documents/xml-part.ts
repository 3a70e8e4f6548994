// XML parts of a zip archive, read as streams of elements and texts.
import { Parser } from "htmlparser2";
import type { Entry, ZipFile } from "yauzl";

/** Returns the entries whose names match, ordered by the number at the end of the name. */
export function partsNamed(entries: readonly Entry[], names: RegExp): readonly Entry[] {
  const number = ({ fileName }: Entry): number => Number(/(\d+)\.xml$/.exec(fileName)?.[1] ?? 0);
  return entries.filter(({ fileName }) => names.test(fileName)).sort((one, other) => number(one) - number(other));
}

/** Maximum number of bytes of an XML part that are read. Text beyond it is ignored. */
const MAX_PART_BYTES = 64 * 2 ** 20;

/** Receiver of the elements and texts of an XML part. Element names are passed without namespace prefix. */
export interface XmlReader {
  open(name: string, attributes: Readonly<Record<string, string>>): void;
  text(text: string): void;
  close(name: string): void;
  /** Returns whether the rest of the XML part can be skipped. */
  isDone(): boolean;
}

/** Reads an XML part until its end, or until the reader is done. Throws if the zip entry is damaged. */
export async function readXml(archive: ZipFile, entry: Entry, reader: XmlReader): Promise<void> {
  const parser = new Parser(
    {
      onopentag: (name, attributes) => reader.open(local(name), attributes),
      ontext: (text) => reader.text(text),
      onclosetag: (name) => reader.close(local(name)),
    },
    { xmlMode: true, decodeEntities: true },
  );
  const decoder = new TextDecoder();
  let bytes = 0;
  for await (const chunk of await archive.openReadStreamPromise(entry)) {
    parser.write(decoder.decode(chunk as Buffer, { stream: true }));
    bytes += (chunk as Buffer).length;
    if (reader.isDone() || bytes > MAX_PART_BYTES) return;
  }
  parser.end();
}

function local(name: string): string {
  return name.slice(name.indexOf(":") + 1);
}
